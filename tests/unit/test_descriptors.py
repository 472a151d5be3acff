"""Files that somebody else closes are noticed before anything is written to what has their number next."""

from __future__ import annotations

import os

from evenbeat.processes.descriptors import DescriptorProbe


def test_a_probe_is_intact_until_and_after_it_is_closed_in_order() -> None:
    probe = DescriptorProbe()
    assert probe.is_intact()
    number = probe._number
    probe.close()
    probe.close()
    with os.fdopen(os.open(os.devnull, os.O_RDONLY)) as file:
        assert file.fileno() == number


def test_a_probe_whose_descriptor_was_closed_is_not_intact_even_if_another_file_has_it() -> None:
    probe = DescriptorProbe()
    os.close(probe._number)
    assert not probe.is_intact()
    reader, writer = os.pipe()
    assert reader == probe._number
    assert not probe.is_intact()
    probe.close()
    os.fstat(reader)  # descriptors of other code stay open
    os.close(reader)
    os.close(writer)
