"""A mock of Cursor's backend, for tests with Cursor's own agent runtime, which is in the wheel `cursor-sdk`."""
