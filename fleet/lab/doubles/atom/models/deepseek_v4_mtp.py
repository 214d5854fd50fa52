"""Double of what drafts for DeepSeek-V4: the class is there, as in an image that can draft."""

from __future__ import annotations


class DeepseekV4MTP:
    """Drafts nothing: the server plays acceptance by its rates."""
