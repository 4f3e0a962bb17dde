from probes.cpuinfo import keep_whole_lines, parse_cpuinfo


def test_each_processor_keeps_its_own_fields() -> None:
    info = parse_cpuinfo("processor : 0\nCPU part : 0xd03\n\nprocessor : 4\nCPU part : 0xd09\n")
    assert info.of(0, "CPU part") == "0xd03"
    assert info.of(4, "CPU part") == "0xd09"


def test_what_is_said_once_holds_for_all() -> None:
    text = "Processor : ARMv7\nprocessor : 0\nBogoMIPS : 1\n\nprocessor : 1\n\nFeatures : neon\nCPU part : 0xc0f\n"
    info = parse_cpuinfo(text)
    assert set(info.processors) == {0, 1}
    assert info.of(1, "CPU part") == info.first("CPU part") == "0xc0f"


def test_the_first_key_that_anybody_has_wins() -> None:
    info = parse_cpuinfo("processor : 0\ncpu : POWER9\n\nmodel name : of the machine\n")
    assert info.first("cpu", "model name") == "POWER9"
    assert info.first("nothing") is None


def test_processors_without_a_blank_line_between_them_are_told_apart() -> None:
    assert set(parse_cpuinfo("processor: 0\ncpu: a\nprocessor: 1\ncpu: b\n").processors) == {0, 1}


def test_older_s390_kernels_write_all_processors_in_one_block() -> None:
    text = "vendor_id       : IBM/S390\n# processors    : 2\nprocessor 0: version = FF\nprocessor 1: version = FF\n"
    info = parse_cpuinfo(text)
    assert set(info.processors) == {0, 1}
    assert info.first("vendor_id") == "IBM/S390"


def test_rubbish_has_no_processors() -> None:
    for text in ("", "\n\n\n", "no colon here", ":::", "processor : 99999999999", "processor : ²"):
        assert parse_cpuinfo(text).processors == {}


def test_a_name_that_was_cut_off_is_no_name() -> None:
    assert keep_whole_lines("processor : 0\nmodel name : Intel(R) Xe") == "processor : 0\n"
    assert keep_whole_lines("model name : Intel(R) Xe") == ""


def test_flags_that_were_cut_off_stand_but_for_the_last() -> None:
    assert parse_cpuinfo(keep_whole_lines("processor : 0\nflags : sse2 avx5")).first("flags") == "sse2"


def test_lines_with_what_the_kernel_never_writes_are_left_out() -> None:
    text = "processor : 0\nmodel name : Int\ufffdl\nvendor_id : Genu\x01\ncpu family : 6\r\n"
    assert parse_cpuinfo(keep_whole_lines(text)).processors == {0: {"processor": "0", "cpu family": "6"}}
