"""The tests of training-operator's own controller that look at the API alone, compiled from its module.

They are three of ``tfjob_controller_test.go``: a job that is suspended when it is created, one that is suspended and
resumed, and one of another controller.
"""

from __future__ import annotations

import re
import subprocess

from testbed import ControlPlane, sources


def test_the_three_that_look_at_the_api_alone_pass(served: ControlPlane) -> None:
    program = sources.controller_tests()
    done = subprocess.run(
        [program, "-test.run=^TestAPIs$", "-ginkgo.focus=TFJob with suspend semantics", "-ginkgo.no-color"],
        cwd=served.run,
        env={"KUBECONFIG": str(served.kubeconfig), "HOME": str(served.run)},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert re.search(r"\b3 Passed\b.*\b0 Failed\b", done.stdout), done.stdout
    assert done.returncode == 0
