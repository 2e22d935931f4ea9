"""Games drawn so that classes of Elo come out even."""

from oracle import ingest_twice, san, wild_game

from chessrl.board.blocks import Block
from chessrl.board.ingest import CountElo, Ingested
from chessrl.config.data import GameFilter

RATED = '[Event "{}"]\n[WhiteElo "{}"]\n[BlackElo "{}"]\n\n'


def drawn(text: str, rate: float) -> Ingested:
    return ingest_twice(Block("f", 0, text.encode()), rates={1500: rate, 1400: 0.0})


def test_games_are_drawn_by_their_text_once():
    texts = [san(wild_game(seed, 12)) for seed in range(400)]
    text = "".join(f"{RATED.format(n, 1500, 1520)}{t}\n\n" for n, t in enumerate(texts))
    counted = CountElo(GameFilter(balance=100))(Block("f", 0, text.encode()))
    assert counted == {1500: 400}
    done = drawn(text, 0.25)
    assert abs(done.games - len(done.skips) - 100) < 5 * 8.7  # its standard deviation
    assert {skip.reason for skip in done.skips} == {"unbalanced"}
    assert done.skips[0].token == "1500 1520"
    # by its text alone: other tags and another way of reading do not matter
    odd = text.replace("[Event", "[ Event").replace("\n\n[", "\n\n\n[")
    assert [skip.index for skip in drawn(odd, 0.25).skips] == [skip.index for skip in done.skips]
    assert drawn(text, 1.0).skips == []
    assert len(drawn(text, 0.0).skips) == 400


def test_classes_of_elo_are_counted_where_the_tags_allow_the_game():
    pairs = [(1499, 1500), (1500, 1500), (1599, 1600), (1600, 1600), ("?", 1500), (0, 1500)]
    text = "".join(f"{RATED.format(n, *pair)}1. e4 e5 *\n\n" for n, pair in enumerate(pairs))
    text += (
        RATED.format("v", 1500, 1500).replace("\n\n", '\n[Variant "Atomic"]\n\n') + "1. e4 *\n\n"
    )
    text += RATED.format("odd", 1500, 1500) + "1. e4 ; odd\n*\n\n" + '[White "\n\n1. e4 *\n\n'
    block = Block("f", 0, text.encode())
    assert CountElo(GameFilter(balance=1))(block) == {1400: 1, 1500: 3, 1600: 1}
    assert CountElo(GameFilter(balance=1, balance_width=50, min_elo=1550))(block) == {
        1550: 1, 1600: 1,
    }  # fmt: skip
