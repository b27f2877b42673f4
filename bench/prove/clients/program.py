"""The natural calls of a client that openapi-python-client made: two pages, a refusal, and /me."""

import json
import os
from typing import Literal

from api import AuthenticatedClient
from api.api.default import list_accounts, list_api_keys, me
from api.models import CallerForbidden, Me

token = os.environ["TOKEN"]
gateway = AuthenticatedClient(base_url=f"{os.environ['ORIGIN']}/api", token=token)
said: list[object] = []
for number in (1, 2):
    page = list_accounts.sync(client=gateway, page=number)
    assert isinstance(page, list)
    said.append(len(page))
refused = list_api_keys.sync(client=gateway)
assert isinstance(refused, CallerForbidden)
code: Literal["caller-forbidden"] = refused.code
# The generator leaves out the address that the document gives to /me.
about = me.sync(client=AuthenticatedClient(base_url=os.environ["ORIGIN"], token=token))
assert isinstance(about, Me)
print(json.dumps([*said, code, about.caller]))
