"""Runs tests of Python's own suite, and prints the result of each.

Usage: suite.py NAME...
Prints "SUITE test outcome" for each test, also "begins" when it does, so that one that hangs is known.
"""
import faulthandler
import os
import sys
import unittest
from test import support

# A test that takes longer hangs: it ends the program, and standard error has where each thread was.
LIMIT_S = 300
# Classes of tests that are left out: this one waits forever on virtual machines whose kernel does not connect a VSOCK
# address to itself.
LEFT_OUT = {"ThreadedVSOCKSocketStreamTest"}
# Tests close and replace the standard descriptors.
OUT = os.dup(1)
ERRORS = os.dup(2)
OWN = os.getpid()


class Result(unittest.TestResult):
    def record(self, test, outcome):
        if os.getpid() == OWN:
            name = test.id().replace(" ", "_")
            os.write(OUT, f"SUITE {name} {outcome}\n".encode())

    def startTest(self, test):
        super().startTest(test)
        self.failing = False
        self.record(test, "begins")
        faulthandler.dump_traceback_later(LIMIT_S, exit=True, file=ERRORS)

    def addSuccess(self, test):
        self.record(test, "passes" if not self.failing else "fails")

    def bad(self, test, error):
        self.failing = True
        self.record(test, "fails")
        text = self._exc_info_to_string(error, test)
        print(f"{test.id()}: {text}", file=sys.__stderr__, flush=True)

    def addError(self, test, error):
        self.bad(test, error)

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.bad(test, error)

    def addSkip(self, test, reason):
        self.record(test, "skipped")

    def addExpectedFailure(self, test, error):
        self.record(test, "passes")

    def addUnexpectedSuccess(self, test):
        self.record(test, "fails")


def wanted(tests):
    """Without the classes that are left out."""
    if not isinstance(tests, unittest.TestSuite):
        return None if type(tests).__name__ in LEFT_OUT else tests
    return type(tests)(part for part in map(wanted, tests) if part is not None)


def main():
    # What is long or large is left out. Some of those that need the network need loopback only.
    support.use_resources = ["network"]
    wanted(unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])).run(Result())


if __name__ == "__main__":
    main()
