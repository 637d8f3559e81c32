"""Numbers, times and the progress of a training as people read them. Standard library only."""

from datetime import UTC, datetime

from dtj_launch.logs import fields
from dtj_launch.progress import Progress


def progress_line(progress: Progress) -> str:
    """`step 450/1000 (45%)  epoch 3/5  loss 0.4123  accuracy 0.912  12.3k examples/s  ETA 1m02s`"""
    parts = [
        f"step {progress.step}" + (f"/{progress.total_steps} ({progress.percent}%)" if progress.total_steps else "")
    ]
    if progress.epoch is not None:
        parts.append(f"epoch {progress.epoch}" + (f"/{progress.epochs}" if progress.epochs else ""))
    parts += [
        f"{name} {value}" if isinstance(value, int) else f"{name} {value:.{4 if name == 'loss' else 3}f}"
        for name, value in progress.metrics.items()
    ]
    if progress.examples_per_second is not None:
        parts.append(f"{short_number(progress.examples_per_second)} examples/s")
    if progress.eta_seconds is not None:
        parts.append(f"ETA {short_time(progress.eta_seconds)}")
    return "  ".join(parts)


def progress_fields(progress: Progress) -> dict[str, object]:
    """What a JSON log line has next to the progress line: `progress`, as GET /status shows it."""
    return fields(progress=progress.document(datetime.now(UTC)))


def short_number(value: float) -> str:
    """Three significant digits: 7.25, 843, 12.3k, 1.2M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.0f}{unit}" if scaled >= 99.95 else f"{scaled:.1f}{unit}"
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"


def short_time(seconds: float) -> str:
    """9s, 1m02s, 3h05m, 2d04h."""
    whole = max(0, round(seconds))
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // below:02d}{small}"
    return f"{whole}s"
