"""Audits: manifests against the index, documents against manifests, a source's inventory against documents; and their repair."""
