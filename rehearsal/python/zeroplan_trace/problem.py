"""What is wrong with what the user asked for, in the words of the program that asked."""


class Problem(Exception):
    def __init__(self, expected, got, hint=""):
        super().__init__(expected, got, hint)
        self.expected, self.got, self.hint = expected, got, hint
