"""What a script may expect of Python; started with an exit code and what to do before it."""

import atexit
import multiprocessing
import os
import signal
import sys
import time

import neighbour


def sleep() -> None:
    time.sleep(600)


def main() -> None:
    code, *does = sys.argv[1:]
    atexit.register(print, "exit handler")
    print(f"name {__name__}  file {os.path.basename(__file__)}  neighbour {neighbour.__name__}")
    print(f"TF_CONFIG {os.environ['TF_CONFIG']}")
    print(f"checkpoints {os.environ['DTJ_CHECKPOINT_DIR']}")
    if "children" in does:
        for how in ("fork", "spawn"):
            child = multiprocessing.get_context(how).Process(target=sleep)
            child.start()
            child.terminate()
            child.join(60)
            print(f"{how} {child.exitcode}")
    if "handle" in does:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("handled"))
    if "wait" in does:
        print("waiting", flush=True)
        time.sleep(600)
    sys.exit(int(code))


if __name__ == "__main__":
    main()
