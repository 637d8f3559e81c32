#!/usr/bin/env bash
# Run test levels, one after the other, and say at the end what passed, what failed and what was left out.
#   usage: scripts/test.sh LEVEL...     (unit, browser, trainer, api, e2e)
# More arguments for pytest: PYTEST_ARGS="-k planner -x"
set -uo pipefail
cd "$(dirname "$0")/.."

summary=() failed=0
read -ra extra <<<"${PYTEST_ARGS:-}"
export DTJ_TRAINER_PYTHON=${DTJ_TRAINER_PYTHON:-$PWD/.venv-trainer/bin/python}

# run LEVEL ENVIRONMENT PYTEST-ARGUMENT...
run() {
    local level=$1 python=$2/bin/python start=$SECONDS status=0 last notes=()
    shift 2
    echo
    echo "== $level"
    "$python" -m pytest "$@" ${extra[@]+"${extra[@]}"} 2>&1 | tee .test-output || status=$?
    last=$(grep -E '(passed|failed|skipped|error|no tests ran)' .test-output | tail -n 1 | tr -d '=' | xargs)
    again "$level" "$@"
    [ "$status" = 5 ] && [ -n "${PYTEST_ARGS:-}" ] && status=0 # a filter may leave a level empty
    [ "$status" = 0 ] || failed=1
    summary+=("$(printf '%-9s %-6s %4ds  %s' "$level" "$([ "$status" = 0 ] && echo ok || echo FAILED)" $((SECONDS - start)) "$last")")
    summary+=(${notes[@]+"${notes[@]}"})
    while read -r line; do summary+=("          left out: $line"); done < <(grep -E '^SKIPPED' .test-output | cut -c9-)
    rm -f .test-output
}

# again LEVEL PYTEST-ARGUMENT...
# Tests of real processes share the machine with others. The few that failed are run once more, alone; one that passes
# then is named as unsteady. Pure code gets no second try.
again() {
    local level=$1 unsteady count
    shift
    unsteady=$(sed -nE 's/^(FAILED|ERROR) //; T; s/ - .*//; p' .test-output | sort -u)
    count=$(grep -c . <<<"$unsteady")
    [ "$status" = 1 ] && [ "$level" != unit ] && [ "$count" -ge 1 ] && [ "$count" -le 3 ] || return 0
    echo
    echo "== $level: what failed, once more, alone"
    "$python" -m pytest "$@" -n 0 --last-failed --last-failed-no-failures none || return 0
    status=0
    last="$last; these passed alone"
    while read -r line; do notes+=("          unsteady: $line"); done <<<"$unsteady"
}

for level in "$@"; do
    make --no-print-directory operator || exit 1
    case $level in
    unit) run unit .venv tests/unit tests/property -m "unit or property" -q -n auto ;;
    browser) run browser .venv tests/browser -m browser -q ;;
    trainer)
        make --no-print-directory trainer tfjs || exit 1
        run trainer .venv-trainer tests/trainer -m trainer -q -n 2
        run local .venv tests/local -m trainer -q
        ;;
    api) run api .venv tests/api -m api -q -n 2 --dist loadscope --no-loadscope-reorder ;;
    e2e) run e2e .venv tests/e2e -m e2e -q ;;
    *)
        echo "unknown level: $level (unit, browser, trainer, api, e2e)" >&2
        exit 2
        ;;
    esac
done

echo
echo "== summary"
printf '%s\n' "${summary[@]}"
exit $failed
