"""Runs tests of Python's own suite, and says of each what came of it.

Usage: suite.py NAME...
Prints "SUITE test outcome" for each test, also "begins" when it does, so that one that hangs is known.
"""
import os
import sys
import unittest
from test import support

# Tests close and replace the standard descriptors.
OUT = os.dup(1)
OWN = os.getpid()


class Result(unittest.TestResult):
    def say(self, test, outcome):
        if os.getpid() == OWN:
            name = test.id().replace(" ", "_")
            os.write(OUT, f"SUITE {name} {outcome}\n".encode())

    def startTest(self, test):
        super().startTest(test)
        self.failing = False
        self.say(test, "begins")

    def addSuccess(self, test):
        self.say(test, "passes" if not self.failing else "fails")

    def bad(self, test, error):
        self.failing = True
        self.say(test, "fails")
        text = self._exc_info_to_string(error, test)
        print(f"{test.id()}: {text}", file=sys.__stderr__, flush=True)

    def addError(self, test, error):
        self.bad(test, error)

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.bad(test, error)

    def addSkip(self, test, reason):
        self.say(test, "skipped")

    def addExpectedFailure(self, test, error):
        self.say(test, "passes")

    def addUnexpectedSuccess(self, test):
        self.say(test, "fails")


def main():
    # What is long or large is left out. Some of those that need the network need loopback only.
    support.use_resources = ["network"]
    unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:]).run(Result())


if __name__ == "__main__":
    main()
