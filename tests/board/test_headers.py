"""What the tags of a game tell, and which games they rule out."""

import chess
import pytest

from chessrl.board.headers import (
    TAGS,
    Header,
    elo_class,
    parse_elo,
    refusal,
    refused_result,
    speed,
)
from chessrl.config.data import RESULTS, SPEEDS, GameFilter


def told(tags: dict[str, str], **rules) -> str:
    """Reason for which a game with these tags is refused; empty where it is not."""
    return (refusal(Header.of(tags), GameFilter(**rules)) or ("", ""))[0]


def elos(white: str | None, black: str | None) -> dict[str, str]:
    tags = {"WhiteElo": white, "BlackElo": black}
    return {name: value for name, value in tags.items() if value is not None}


@pytest.mark.parametrize(
    ("text", "rating"),
    [("2650", 2650), (" 1500 ", 1500), ("0900", 900), ("1", 1), ("99999", 99999)]
    + [(odd, None) for odd in ("", "?", "-", "0", "0000", "unknown", "2650?", "-5", "²", "1.5e3")]
    + [("9" * length, None) for length in (6, 5000)],
)
def test_a_rating_is_a_number_above_0(text, rating):
    assert parse_elo(text) == rating


@pytest.mark.parametrize("unknown", [None, "", "?", "0", "-", "1500?"])
def test_a_game_without_both_ratings_is_refused_where_one_is_asked_for(unknown):
    for tags in (elos(unknown, "1500"), elos("1500", unknown), elos(unknown, unknown)):
        assert told(tags) == ""
        for rules in ({"min_elo": 1}, {"max_elo": 3000}, {"balance": 5}):
            for elo in ("mean", "both"):
                assert told(tags, elo=elo, **rules) == "unknown_elo"
                assert told(tags, elo=elo, unknown_elo="keep", **rules) == ""


@pytest.mark.parametrize(
    ("white", "black", "mean", "both"),
    [
        (1500, 1500, "", ""),
        (1000, 1000, "", ""),  # both ends are inside
        (2000, 2000, "", ""),
        (999, 1001, "", "elo"),
        (999, 1000, "elo", "elo"),  # a mean of 999.5
        (2000, 2001, "elo", "elo"),
        (1999, 2001, "", "elo"),
        (500, 2500, "", "elo"),
        (2001, 2001, "elo", "elo"),
        (999, 999, "elo", "elo"),
    ],
)
def test_a_range_of_elo(white, black, mean, both):
    for tags in (elos(str(white), str(black)), elos(str(black), str(white))):
        assert told(tags, min_elo=1000, max_elo=2000) == mean
        assert told(tags, min_elo=1000, max_elo=2000, elo="both") == both


@pytest.mark.parametrize("elo", ["mean", "both"])
def test_a_range_open_at_one_end(elo):
    assert told(elos("3500", "3500"), min_elo=1000, elo=elo) == ""
    assert told(elos("999", "999"), min_elo=1000, elo=elo) == "elo"
    assert told(elos("1", "1"), max_elo=1000, elo=elo) == ""
    assert told(elos("1001", "1001"), max_elo=1000, elo=elo) == "elo"
    assert told(elos("1", "3500"), balance=10, elo=elo) == ""


def test_the_value_that_ruled_a_game_out_is_told():
    header = Header.of(elos("900", "950"))
    assert refusal(header, GameFilter(min_elo=1000)) == ("elo", "900 950")
    assert refusal(header, GameFilter(speeds=["blitz"])) == ("speed", "unknown")
    assert refusal(Header.of({"Variant": "Atomic"}), GameFilter()) == ("variant", "Atomic")
    dated = Header.of({"Date": "1999.01.02"})
    assert refusal(dated, GameFilter(since="2000")) == ("date", "1999.01.02")


@pytest.mark.parametrize(
    ("white", "black", "width", "place"),
    [
        ("1500", "1500", 100, 1500),
        ("1499", "1500", 100, 1400),
        ("1599", "1600", 100, 1500),
        ("1600", "1600", 100, 1600),
        ("1560", "1560", 50, 1550),
        ("50", "20", 100, 0),
        ("1500", "?", 100, None),
    ],
)
def test_classes_of_elo(white, black, width, place):
    assert elo_class(Header.of(elos(white, black)), width) == place


@pytest.mark.parametrize(
    ("control", "name"),
    [
        # base + 40 increments: 29, 30; 179, 180; 479, 480; 1499, 1500 seconds
        ("29+0", "ultrabullet"), ("30+0", "bullet"), ("15+0", "ultrabullet"), ("0+1", "bullet"),
        ("179+0", "bullet"), ("180+0", "blitz"), ("60+2", "bullet"), ("99+2", "bullet"),
        ("100+2", "blitz"), ("120+1", "bullet"), ("180+2", "blitz"), ("300+3", "blitz"),
        ("479+0", "blitz"), ("480+0", "rapid"), ("600", "rapid"), ("1499", "rapid"),
        ("1500+0", "classical"), ("300+30", "classical"), ("900+10", "rapid"),
        ("900+15", "classical"), ("5400", "classical"), (" 180+2 ", "blitz"),
        ("40/7200:3600", "classical"), ("40/300:60", "blitz"), ("999999999", "classical"),
        ("-", "correspondence"), ("1/86400", "correspondence"), ("1/259200", "correspondence"),
        ("", "unknown"), ("?", "unknown"), ("*180", "unknown"), ("60+0.5", "unknown"),
        ("blitz", "unknown"), ("180+", "unknown"), ("³", "unknown"), ("9" * 5000, "unknown"),
        ("180+" + "9" * 5000, "unknown"),
    ],
)  # fmt: skip
def test_classes_of_speed(control, name):
    assert speed(control) == name in SPEEDS
    assert told({"TimeControl": control}, speeds=[name]) == ""
    others = [other for other in SPEEDS if other != name]
    assert told({"TimeControl": control}, speeds=others) == "speed"
    assert told({"TimeControl": control}) == ""


def test_a_game_without_time_control_is_of_unknown_speed():
    assert told({}, speeds=["unknown"]) == ""
    assert told({}, speeds=["blitz", "rapid"]) == "speed"


SINCE, UNTIL = "2010.05.10", "2012"


@pytest.mark.parametrize(
    ("date", "reason"),
    [
        ("2010.05.10", ""), ("2010.05.09", "date"), ("2010.05.11", ""), ("2012.12.31", ""),
        ("2013.01.01", "date"), ("2010-06-01", ""), ("2010/06/01", ""), ("2010.6.1", ""),
        ("2010.5.9", "date"), ("2010.06.??", ""), ("2010.06", ""), ("2011", ""), ("2012.??.??", ""),
        ("2013.??.??", "date"), ("2009.??.??", "date"), ("2010.04.??", "date"),
        ("2010.??.??", "unknown_date"), ("2010.05.??", "unknown_date"), ("2010", "unknown_date"),
        ("????.??.??", "unknown_date"), ("", "unknown_date"), ("?", "unknown_date"),
        ("May 2011", "unknown_date"),
    ],
)  # fmt: skip
def test_a_range_of_dates(date, reason):
    tags = {"Date": date}
    assert told(tags, since=SINCE, until=UNTIL) == reason
    kept = "" if reason == "unknown_date" else reason
    assert told(tags, since=SINCE, until=UNTIL, unknown_date="keep") == kept
    assert told(tags) == ""


@pytest.mark.parametrize(
    ("bound", "inside", "outside"),
    [
        ({"since": "2010"}, "2010.01.01", "2009.12.31"),
        ({"since": "2010.03"}, "2010.03.01", "2010.02.28"),
        ({"since": "2010.03.02"}, "2010.03.02", "2010.03.01"),
        ({"until": "2010"}, "2010.12.31", "2011.01.01"),
        ({"until": "2010.03"}, "2010.03.31", "2010.04.01"),
        ({"until": "2010.03.02"}, "2010.03.02", "2010.03.03"),
    ],
)
def test_a_bound_is_included_whole(bound, inside, outside):
    assert told({"Date": inside}, **bound) == ""
    assert told({"Date": outside}, **bound) == "date"
    assert told({"UTCDate": outside}, **bound) == "date"
    assert told({"Date": "????.??.??", "UTCDate": inside}, **bound) == ""


@pytest.mark.parametrize(
    ("date", "utc", "year"),
    [("1999.05.??", "2000.01.01", 1999), ("????.??.??", "2000.01.01", 2000), ("", "1987", 1987),
     ("????.??.??", None, 0), (None, None, 0), ("99.01.01", None, 0), ("19", None, 0)],
)  # fmt: skip
def test_the_year(date, utc, year):
    tags = {name: text for name, text in (("Date", date), ("UTCDate", utc)) if text is not None}
    assert Header.of(tags).year == year


def test_results():
    for result in RESULTS:
        others = [other for other in RESULTS if other != result]
        assert told({"Result": result}, results=[result]) == ""
        assert told({"Result": result}, results=others) == "result"
        assert refused_result(result, GameFilter(results=others)) == "result"
        assert refused_result(result, GameFilter(results=[result], unfinished="skip")) == ""
    for result in ("*", "?", "", "1/2", "½-½"):  # the tag does not say: the movetext decides
        assert Header.of({"Result": result}).result == ""
        assert told({"Result": result}, results=["1-0"], unfinished="skip") == ""
        assert refused_result(result, GameFilter(results=["1-0"])) == ""
        assert refused_result(result, GameFilter(unfinished="skip")) == "unfinished"


@pytest.mark.parametrize("side", ["White", "Black"])
def test_bots(side):
    assert told({f"{side}Title": "BOT"}) == "bot"
    assert told({f"{side}Title": "BOT"}, bots="keep") == ""
    assert told({f"{side}Title": "GM", side: "BOT"}) == ""


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({"Variant": "Standard"}, ""), ({"Variant": "standard"}, ""), ({"Variant": "Chess"}, ""),
        ({"Variant": ""}, ""), ({"Variant": "?"}, ""), ({"Variant": "Normal"}, ""),
        ({"Variant": "From Position", "FEN": chess.STARTING_FEN}, ""),
        ({"Variant": "Atomic"}, "variant"), ({"Variant": "Chess960"}, "variant"),
        ({"Variant": "Crazyhouse", "FEN": chess.STARTING_FEN}, "variant"),
        ({"FEN": chess.STARTING_FEN, "SetUp": "1"}, ""), ({"FEN": ""}, ""), ({"FEN": "?"}, ""),
        ({"FEN": "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq -"}, ""),
        ({"FEN": "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 3 9"}, ""),
        ({"FEN": "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR b KQkq - 0 1"}, "fen_start"),
        ({"FEN": "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQ - 0 1"}, "fen_start"),
        ({"FEN": "nrbqkbrn/pppppppp/8/8/8/8/PPPPPPPP/NRBQKBRN w GBgb - 0 1"}, "fen_start"),
        ({"FEN": "nonsense"}, "fen_start"),
    ],
)  # fmt: skip
def test_only_ordinary_chess_from_the_usual_start(tags, reason):
    assert told(tags) == reason
    assert told(tags, bots="keep", unfinished="keep", duplicates="keep") == reason


def test_a_header_is_made_of_the_named_tags_alone():
    everything = {name: "1-0" if name == "Result" else "1500" for name in TAGS}
    header = Header.of(everything)
    assert header == Header.of(everything | {"Event": "x", "White": "y", "Round": "3"})
    for name in TAGS:  # each of them decides something, alone or beside the others
        changed = everything | {name: "BOT" if "Title" in name else "0-1"}
        bare = {name: changed[name]}
        assert header != Header.of(changed) or Header.of(bare) != Header()
