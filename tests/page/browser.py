"""A Chromium without a window, driven through the DevTools protocol over two pipes: standard library alone.

Messages are JSON texts that end in a NUL byte; Chromium reads them from its descriptor 3 and writes to 4
(--remote-debugging-pipe)."""
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find_chromium():
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Browser:
    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="zeroplan-page-")
        ours_read, theirs_write = os.pipe()
        theirs_read, ours_write = os.pipe()

        def move_descriptors():  # in the child: 3 to read from, 4 to write to
            source, target = os.dup(theirs_read), os.dup(theirs_write)
            os.dup2(source, 3)
            os.dup2(target, 4)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
                 "--no-default-browser-check", "--user-data-dir=" + self.profile, "--remote-debugging-pipe"]
        self.log = open(os.path.join(self.profile, "log"), "wb")
        self.process = subprocess.Popen([program, *flags, "about:blank"], preexec_fn=move_descriptors, close_fds=False,
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(theirs_read)
        os.close(theirs_write)
        self.reader, self.writer = ours_read, ours_write
        self.buffer = b""
        self.number = 0
        self.events = []
        self.session = None

    def _receive(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.reader], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            chunk = os.read(self.reader, 1 << 16)
            if not chunk:
                raise RuntimeError("Chromium ended: " + open(self.log.name, errors="replace").read()[-2000:])
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, seconds=60, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.writer, data):]
        deadline = time.monotonic() + seconds
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def attach(self):
        """Goes into a page of its own, and listens to all that it asks for and complains about."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Network", "Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def evaluate(self, expression, seconds=60):
        result = self.call("Runtime.evaluate", seconds, expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression, seconds=60):
        deadline = time.monotonic() + seconds
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise TimeoutError("never true: " + expression)
            time.sleep(0.05)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        os.close(self.reader)
        os.close(self.writer)
        shutil.rmtree(self.profile, ignore_errors=True)
