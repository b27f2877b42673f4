"""Prints what REDbot has against the reply of each address: its level, its summary and its text."""

import os
import sys
from configparser import ConfigParser

import thor
from httplint.note import levels
from redbot.resource import HttpResource

config = ConfigParser()
config.read_dict({"redbot": {"enable_local_access": "True"}})
headers = [("Authorization", f"Bearer {os.environ['TOKEN']}")]
waiting = set(sys.argv[1:])
if not waiting:
    sys.exit("no address is given")


def check(address: str) -> None:
    resource = HttpResource(config["redbot"])
    resource.set_request(address, headers=headers)

    @thor.events.on(resource)
    def check_done() -> None:
        notes = resource.response.notes
        if not notes:
            print(f"{address}: REDbot has not read the reply")
        for note in notes:
            if note.level in (levels.WARN, levels.BAD):
                print(f"{address}: {note.level.name}: {note.summary}")
        waiting.discard(address)
        if not waiting:
            thor.stop()

    resource.check()


for one in sorted(waiting):
    check(one)
thor.run()
