"""Exact search for mates in one and in two; castling, en passant and promotions included.

The rules of repetition and of fifty moves are left out, as the judge of episodes leaves them out.
"""

from collections.abc import Iterator

import chess

KILLERS = 4
"""Replies remembered because they refuted another first move."""


def mates_in_one(board: chess.Board, at_most: int = 0) -> list[chess.Move]:
    """Legal moves that mate at once, in the order of their UCI.

    Args:
        board: left as it was.
        at_most: stop when so many are found, whichever they are; 0 finds all.
    """
    found = []
    for move in _perhaps_checks(board):
        if not board.is_legal(move):
            continue
        board.push(move)
        if board.is_checkmate():
            found.append(move)
        board.pop()
        if len(found) == at_most > 0:
            break
    return sorted(found, key=chess.Move.uci)


def mates_in_two(board: chess.Board, at_most: int = 0) -> list[chess.Move]:
    """First moves that mate in exactly two, whatever the reply, in the order of their UCI.

    None where there is a mate in one: the shortest mate is then another.

    Args:
        board: left as it was.
        at_most: stop when so many are found, the first of that order; 0 finds all.
    """
    if mates_in_one(board, 1):
        return []
    found: list[chess.Move] = []
    killers: list[chess.Move] = []
    for first in sorted(board.legal_moves, key=chess.Move.uci):
        board.push(first)
        if not _refuted(board, killers):
            found.append(first)
        board.pop()
        if len(found) == at_most > 0:
            break
    return found


def hardest_reply(board: chess.Board) -> tuple[chess.Move, chess.Move]:
    """Reply to the first move of a mate in two that leaves the fewest mates, and one of them.

    Equal ones are told apart by the order of their UCI. All resist equally long: one move.

    Args:
        board: after the first move, mated after every reply; left as it was.
    """
    replies = []
    for reply in list(board.legal_moves):
        board.push(reply)
        mates = mates_in_one(board)
        board.pop()
        replies.append((len(mates), reply.uci(), reply, mates))
    _, _, reply, mates = min(replies)
    return reply, mates[0]


def _refuted(board: chess.Board, killers: list[chess.Move]) -> bool:
    """Whether some reply escapes a mate in one; stalemate and no reply at all count as escapes."""
    replies = 0
    for reply in _likely_first(board, killers):
        replies += 1
        board.push(reply)
        escapes = not mates_in_one(board, 1)
        board.pop()
        if escapes:
            if reply in killers:
                killers.remove(reply)
            killers.insert(0, reply)
            del killers[KILLERS:]
            return True
    return not replies


def _likely_first(board: chess.Board, killers: list[chess.Move]) -> Iterator[chess.Move]:
    """Legal moves: first those that refuted another first move, then captures, then the rest."""
    known = [move for move in killers if board.is_legal(move)]
    yield from known
    others = [move for move in board.legal_moves if move not in known]
    yield from sorted(others, key=lambda move: not board.is_capture(move))


def _perhaps_checks(board: chess.Board) -> Iterator[chess.Move]:
    """Pseudo-legal moves that may give check: none that does is left out."""
    king = board.king(not board.turn)
    if king is None:
        return
    occupied = board.occupied
    diagonal = chess.BB_DIAG_ATTACKS[king][chess.BB_DIAG_MASKS[king] & occupied]
    straight = (
        chess.BB_RANK_ATTACKS[king][chess.BB_RANK_MASKS[king] & occupied]
        | chess.BB_FILE_ATTACKS[king][chess.BB_FILE_MASKS[king] & occupied]
    )
    checks_from = (
        (board.pawns, chess.BB_PAWN_ATTACKS[not board.turn][king]),
        (board.knights, chess.BB_KNIGHT_ATTACKS[king]),
        (board.bishops, diagonal),
        (board.rooks, straight),
        (board.queens, diagonal | straight),
    )
    own = board.occupied_co[board.turn]
    uncovers = (diagonal | straight) & own  # nothing stands between these and the king
    yield from board.generate_pseudo_legal_moves(uncovers)
    for pieces, squares in checks_from:
        if movers := pieces & own & ~uncovers:
            for move in board.generate_pseudo_legal_moves(movers, squares):
                if not move.promotion and not board.is_en_passant(move):
                    yield move
    # where two things change at once, where the piece goes does not tell
    last = chess.BB_RANK_8 if board.turn == chess.WHITE else chess.BB_RANK_1
    yield from board.generate_pseudo_legal_moves(board.pawns & ~uncovers, last)
    yield from board.generate_pseudo_legal_ep(~uncovers)
    yield from board.generate_castling_moves(~uncovers)
