"""The vectors that all kits share, and what the README shows."""

import json
import re
import subprocess
import sys
import unittest
from email.message import Message
from pathlib import Path

import oncebox_receiver as kit

HERE = Path(__file__).parents[1]
VECTORS = json.loads((HERE.parent / "vectors.json").read_text())


def message(pairs):
    """Headers as http.server gives them: also a name that comes twice."""
    headers = Message()
    for name, value in pairs:
        headers[name] = value
    return headers


class Vectors(unittest.TestCase):
    def test_they_are_what_their_source_makes(self):
        made = subprocess.run([sys.executable, HERE.parent / "vectors.py"], capture_output=True, check=True, text=True)
        self.assertEqual(json.loads(made.stdout), VECTORS)

    def test_secrets(self):
        for case in VECTORS["secrets"]:
            with self.subTest(case["name"]):
                if case.get("refused"):
                    self.assertRaises(ValueError, kit.secret_in, case["text"])
                else:
                    self.assertEqual(kit.secret_in(case["text"]).hex(), case["hex"])

    def test_signatures(self):
        for case in VECTORS["signatures"]:
            with self.subTest(case["name"]):
                secrets = [kit.secret_in(text) for text in case["secrets"]]
                try:
                    kit.verify(secrets, message(case["headers"]), case["body"].encode(), case["now"])
                    result = "good"
                except kit.Unverified as error:
                    result = error.reason
                self.assertEqual(result, case["result"])

    def test_requests(self):
        for case in VECTORS["requests"]:
            for name, read in [("read", kit.read), ("readSigned", kit.read_signed)]:
                with self.subTest(case["name"], read=name):
                    event = None
                    try:
                        event = read(message(case["headers"]), case["body"].encode())
                        result = {"key": event.key}
                    except kit.Refused as error:
                        result = {"refused": error.reason}
                    self.assertEqual(result, case[name])
                    if event:
                        fields = {**case["fields"], "fence": case["fields"]["fence"] and int(case["fields"]["fence"])}
                        self.assertEqual({field: getattr(event, field) for field in fields}, fields)

    def test_digests(self):
        for case in VECTORS["digests"]:
            self.assertEqual(kit.digest_of(case["body"].encode()), case["digest"])

    def test_headers_in_a_dictionary(self):
        headers = {"Webhook-Id": "a", "Idempotency-Key": '"a"'}
        self.assertEqual(kit.read(headers, b"").key, "a")

    def test_table(self):
        self.assertEqual(kit.TABLE.split(), VECTORS["table"].split())

    def test_code_in_the_readme_is_code_that_runs(self):
        blocks = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.DOTALL)
        self.assertTrue(blocks)
        for block in blocks:
            self.assertIn(block, (HERE / "sample/main.py").read_text())
