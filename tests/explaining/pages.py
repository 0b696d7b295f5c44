"""Reads pages as a browser would, and looks for what they must not have."""

import html.parser

VOID = {"meta", "img", "input", "br", "hr", "link"}


class Page(html.parser.HTMLParser):
    """The tags, the texts and the scripts of a page; tags must be balanced."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.texts, self.scripts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open:
            self.scripts.append(data)
        elif "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)


def read_page(path):
    return Page(path.read_text("utf-8"))


def assert_nothing_outside(page):
    """No address but those that hold their own content, and no handler in a tag."""
    assert not {"link", "iframe", "a", "object", "base"} & {t for t, _ in page.tags}
    for _, attributes in page.tags:
        assert not {"href", "srcset"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("src", "data:").startswith("data:")
        assert "url(" not in attributes.get("style", "")
    assert "://" not in "".join(page.scripts)
