"""The records that travel between the parts, and the codec that turns bytes into them.

Every record is a frozen pydantic model with a name and a version. Evolution is additive: a new optional field keeps
the version, anything else is a new version with an upcast in ``codec``. A stored sample of every version is in
``tests/contracts/samples`` and decodes for ever.
"""
