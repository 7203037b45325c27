"""A bounded memory keeps what was used last."""

from __future__ import annotations

from weft.lru import Lru


def test_the_value_used_longest_ago_goes_first() -> None:
    lru: Lru[str, int] = Lru(2)
    lru.put("a", 1)
    lru.put("b", 2)
    assert lru.get("a") == 1
    lru.put("c", 3)
    assert (lru.get("a"), lru.get("b"), lru.get("c")) == (1, None, 3)
    assert list(lru) == ["a", "c"]


def test_weights_bound_what_is_kept() -> None:
    lru: Lru[str, str] = Lru(10, len)
    for name, size in (("a", 4), ("b", 4), ("c", 4)):
        lru.put(name, "x" * size)
    assert (list(lru), lru.weight) == (["b", "c"], 8)


def test_a_value_that_has_grown_counts_anew_when_it_is_put_again() -> None:
    lru: Lru[str, list[int]] = Lru(6, len)
    grown = [1]
    lru.put("a", grown)
    lru.put("b", [1, 2])
    grown += [2, 3, 4]
    assert lru.weight == 3
    lru.put("a", grown)
    assert (list(lru), lru.weight) == (["b", "a"], 6)
    grown.append(5)
    lru.put("a", grown)
    assert (list(lru), lru.weight) == (["a"], 5)


def test_one_value_is_kept_whatever_its_weight() -> None:
    lru: Lru[str, str] = Lru(1, len)
    lru.put("a", "much too long")
    assert lru.get("a") == "much too long"
    lru.put("b", "long, too")
    assert list(lru) == ["b"]


def test_what_is_dropped_makes_room() -> None:
    lru: Lru[str, str] = Lru(4, len)
    lru.put("a", "xx")
    lru.drop("a")
    lru.drop("a")
    assert (len(lru), lru.weight, "a" in lru) == (0, 0, False)
    lru.put("b", "xxxx")
    lru.clear()
    assert (len(lru), lru.weight) == (0, 0)
