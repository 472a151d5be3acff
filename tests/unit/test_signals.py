"""Waiting for a signal: the first ends the wait, the next one hurries. Real signals, in processes."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from evenbeat import InvalidValue, Scheduler
from evenbeat.processes.signals import check_main_thread, describe_exit

PROGRAM = """
import os, signal, sys
from evenbeat.processes.signals import until_signalled
hurried = []
signal.setitimer(signal.ITIMER_REAL, 30)  # the test must not hang
if sys.argv[1] == "signal":
    import threading
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
    until_signalled(lambda: hurried.append(1), start=timer.start)
else:
    until_signalled(lambda: hurried.append(1), timeout=0.01)
first = list(hurried)
os.kill(os.getpid(), signal.SIGINT)
print(first, hurried)
"""


HANGUP = """
import os, signal, sys
from evenbeat.processes.signals import until_signalled
signal.setitimer(signal.ITIMER_REAL, 30)  # the test must not hang
# Whatever the tests were started with: a child inherits that a signal is ignored.
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "nohup" else signal.SIG_DFL)
def start():
    os.kill(os.getpid(), signal.SIGHUP)
until_signalled(lambda: None, timeout=0.05 if sys.argv[1] == "nohup" else None, start=start)
print("drained", signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)
"""


@pytest.mark.parametrize(("how", "ignored"), [("terminal", False), ("nohup", True)])
def test_sighup_ends_the_wait_unless_it_is_ignored(how: str, ignored: bool) -> None:
    done = subprocess.run([sys.executable, "-c", HANGUP, how], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"drained {ignored}"


@pytest.mark.parametrize("how", ["signal", "time"])
def test_a_signal_or_the_timeout_ends_the_wait_and_another_signal_hurries(how: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] [1]"


def test_run_outside_the_main_thread_is_refused_with_a_hint() -> None:
    caught: list[InvalidValue] = []

    def elsewhere() -> None:
        try:
            Scheduler("memory://").run()
        except InvalidValue as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere, name="web")
    thread.start()
    thread.join()
    assert 'thread "web" does not get; call it in the main thread, or use start()' in str(caught[0])
    check_main_thread()


@pytest.mark.parametrize(
    ("code", "words"), [(0, "exit code 0"), (3, "exit code 3"), (-9, "signal SIGKILL"), (-99, "signal 99")]
)
def test_an_exit_code_is_described(code: int, words: str) -> None:
    assert describe_exit(code) == words


STARTING = """
import os, signal, sys
from evenbeat.processes.signals import until_signalled
signal.setitimer(signal.ITIMER_REAL, 30)  # the test must not hang
hurried = []
def start():
    os.kill(os.getpid(), signal.SIGTERM)
    if sys.argv[1] in ("twice", "thrice"):
        os.kill(os.getpid(), signal.SIGTERM)
    if sys.argv[1] == "thrice":
        os.kill(os.getpid(), signal.SIGTERM)
    if sys.argv[1] == "fails":
        raise RuntimeError("no store")
try:
    until_signalled(lambda: hurried.append(1), start=start)
    print("drained", hurried)
except (KeyboardInterrupt, RuntimeError) as error:
    print(type(error).__name__, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
"""


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("once", "drained []"),
        ("twice", "drained [1]"),
        ("thrice", "KeyboardInterrupt True"),
        ("fails", "RuntimeError True"),
    ],
)
def test_a_signal_during_start_ends_the_wait_and_kills_nothing(how: str, says: str) -> None:
    done = subprocess.run([sys.executable, "-c", STARTING, how], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == says
