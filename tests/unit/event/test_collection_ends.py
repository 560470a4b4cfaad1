"""Ends of collections that come again."""

from tailrace.event.collection_ends import CollectionEnds
from tailrace.event.namespace import Namespace


def test_an_end_that_comes_again_does_not_bring_back_what_a_later_one_ended() -> None:
    ends, orders, shop = CollectionEnds(), Namespace("shop", "orders"), Namespace("shop")
    for of, time in ((orders, 5), (shop, 20), (shop, 10), (orders, 3)):
        ends.add(of, time)
    assert (ends.last(orders), ends.last(shop)) == (5, 20)
    assert ends.follows(19, orders)
    assert not ends.follows(20, orders)
    assert ends.follows(19, Namespace("shop", "other"))
    assert not ends.follows(0, Namespace("store", "orders"))
