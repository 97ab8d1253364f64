"""Lanes: bulk changes wait in [bulk] and are fed to [documents] a few at a time, so that live edits find the way free."""
