"""What SIGTERM and SIGHUP leave behind: nothing."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from foretrace.cli import main
from foretrace.cli.signals import Ended, heard

TRACE = Path(__file__).parents[1] / "data" / "traces" / "mlp_eager.json.gz"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_leaves_no_temporary_copy(name: str, tmp_path: Path):
    number = getattr(signal, name)
    command = [sys.executable, "-m", "foretrace", "view", str(TRACE), "--add-findings", "--no-browser", "--port", "0"]
    with subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs these tests may have chosen to ignore it.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()  # it serves, from the copy
        assert [path.name.startswith("foretrace-view-") for path in tmp_path.iterdir()] == [True]
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert said.endswith("foretrace: ended by a signal\n")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def _default() -> object:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_default")
def test_a_second_one_does_not_end_the_clearing_away():
    cleared = []

    @heard()
    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            cleared.append(True)

    with pytest.raises(Ended) as ended:
        work()
    assert cleared
    assert ended.value.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("_default")
def test_what_a_program_chose_stays(capsys: pytest.CaptureFixture[str]):
    heard_by_it = []
    signal.signal(signal.SIGTERM, lambda *_: heard_by_it.append(1))
    with heard():
        signal.raise_signal(signal.SIGTERM)
    assert heard_by_it == [1]
    codes = []
    thread = threading.Thread(target=lambda: codes.append(main(["sql", "--schema", "steps"])))
    thread.start()
    thread.join()
    assert codes == [0]
    assert "step" in capsys.readouterr().out


@pytest.mark.usefixtures("_default")
def test_a_fork_ends_by_the_signal_itself():
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork")
    program = (
        "import os, signal, sys\n"
        "from foretrace.cli.signals import heard\n"
        "with heard():\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "        os._exit(0)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{-signal.SIGTERM}\n", "")
