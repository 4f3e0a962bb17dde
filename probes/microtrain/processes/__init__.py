"""Fresh processes that measurements run in, and what they take of memory."""
