"""Runs the tests of a folder and prints one line for each: how it ended, and its name.

    python unittests.py FOLDER     from the folder above
"""

import sys
import unittest


class Outcomes(unittest.TestResult):
    def tell(self, outcome, test):
        print(f"outcome {outcome} {test.id()}", file=sys.stdout, flush=True)

    def addSuccess(self, test):
        self.tell("pass", test)

    def addFailure(self, test, err):
        self.tell("fail", test)
        print(self._exc_info_to_string(err, test), flush=True)

    addError = addFailure


unittest.TestLoader().discover(sys.argv[1], top_level_dir=".").run(Outcomes())
