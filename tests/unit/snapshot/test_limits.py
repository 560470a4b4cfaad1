"""How much a chunk of a range scans, after chunks that were slow or that the server gave up."""

from tailrace.snapshot.limits import CHUNK_MS, ChunkLimit, ChunkLimits


def test_a_range_whose_chunks_are_quick_has_no_limit_of_its_own() -> None:
    limits = ChunkLimits()
    limits.note("a", 4096, 0.1)
    assert limits.of("a", 4096) == ChunkLimit(4096)


def test_chunks_become_smaller_after_a_slow_one_and_grow_again() -> None:
    limits = ChunkLimits()
    limits.note("a", 1000, 1.0)
    assert limits.of("a", 4096) == ChunkLimit(250)
    assert limits.of("b", 4096) == ChunkLimit(4096), "another range is not slow"
    limits.note("a", 100, 0.01)
    assert limits.of("a", 4096) == ChunkLimit(250), "a smaller chunk shows nothing"
    sizes = []
    for _ in range(5):
        limits.note("a", limits.of("a", 4096).documents, 0.01)
        sizes.append(limits.of("a", 4096).documents)
    assert sizes == [500, 1000, 2000, 4000, 4096]


def test_after_chunks_that_the_server_gave_up_one_document_gets_more_time() -> None:
    limits = ChunkLimits()
    tried = limits.of("a", 4096)
    documents, times = [], []
    for _ in range(14):
        limits.too_slow("a", tried)
        tried = limits.of("a", 4096)
        documents.append(tried.documents)
        times.append(tried.ms)
    assert documents[:6] == [1024, 256, 64, 16, 4, 1]
    assert set(documents[6:]) == {1}
    assert set(times[:6]) == {CHUNK_MS}
    assert times[6:8] == [2 * CHUNK_MS, 4 * CHUNK_MS]
    assert times[-1] == 20_000, "the driver waits 30 s"
    limits.note("a", 1, 0.01)
    assert limits.of("a", 4096) == ChunkLimit(2)
