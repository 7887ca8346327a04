//! Holders that may believe at the same time that they hold a name (clause X1).

use super::{
    Broken, Stamp, Violation,
    account::{Account, Hold},
    mode::as_what,
    stamp::Span,
};
use std::time::Duration;
use tenure_core::Mode;

/// A stretch of a hold in which its mode did not change.
struct Stretch<'h, 'a> {
    hold: &'h Hold<'a>,
    mode: Mode,
    from: Stamp,
    to: Stamp,
}

/// An earlier stretch, for as long as it stands beside a later one and nothing excuses that.
struct Beside<'s, 'h, 'a> {
    earlier: &'s Stretch<'h, 'a>,
    from: Stamp,
    to: Stamp,
}

/// Clause X1 by the arithmetic of L3: a holder believes from the grant to the release, the loss or the deadline. Only
/// those may believe at once whose modes admit each other.
pub(super) fn company(account: &Account<'_>, name: &str, holds: &[Hold<'_>], found: &mut Vec<Violation>) {
    // A hold without an end outlasts the last note.
    let end = account.end + Duration::from_millis(1);
    let seen = move |to| if to == Stamp::NEVER { end } else { to };
    let of_hold =
        |hold| Hold::stretches(hold).map(move |(mode, from, to)| Stretch { hold, mode, from, to: seen(to) });
    let mut stretches: Vec<_> =
        holds.iter().flat_map(of_hold).filter(|stretch| stretch.from < stretch.to).collect();
    stretches.sort_by_key(|stretch| stretch.from);
    let mut earlier: Vec<&Stretch<'_, '_>> = Vec::new();
    for later in &stretches {
        earlier.retain(|stretch| stretch.to > later.from);
        let others = earlier.iter().filter(|stretch| !std::ptr::eq(stretch.hold, later.hold));
        let beside = others.map(|earlier| Beside {
            earlier,
            from: later.from.max(forgotten_until(account, name, earlier, later)),
            to: earlier.to.min(later.to),
        });
        let beside: Vec<_> = beside.filter(|beside| beside.from < beside.to).collect();
        let (admitted, refused): (Vec<_>, Vec<_>) =
            beside.into_iter().partition(|beside| later.mode.admits([beside.earlier.mode]));
        found.extend(refused.iter().map(|beside| two_holders(name, beside, later)));
        found.extend(crowd(name, &admitted, later));
        earlier.push(later);
    }
}

/// Until when these two may believe at once because the store was made to forget the older grant (clause F4): a lease
/// after the end of the fault, the latest deadline that it could have then. The older may be a successor that had not
/// asked yet: it hears nothing of its grant before the chain's next contact with the store.
fn forgotten_until(
    account: &Account<'_>,
    name: &str,
    earlier: &Stretch<'_, '_>,
    later: &Stretch<'_, '_>,
) -> Stamp {
    // In a chain one hold ends before the next begins, and the store is not asked.
    if earlier.hold.claim == later.hold.claim {
        return Stamp::ZERO;
    }
    // The stretches tell nothing of it: a forgotten holder may still become a reader, or note its grant late.
    let age = |hold: &Hold<'_>| (hold.token, hold.origin.begun());
    let older = if age(earlier.hold) < age(later.hold) { earlier.hold } else { later.hold };
    let between = account.spells_in(older.origin.begun(), later.from).filter(|spell| spell.forgets(name));
    between.map(|spell| spell.to + older.lease).max().unwrap_or(Stamp::ZERO)
}

fn two_holders(name: &str, beside: &Beside<'_, '_, '_>, later: &Stretch<'_, '_>) -> Violation {
    let Beside { earlier, from, to } = beside;
    let what = format!(
        "{} while {} still believed in its own grant{}, token {}: both did for {}",
        later.begins(name),
        earlier.hold.client,
        as_what(earlier.mode),
        earlier.hold.token,
        Span(to.since(*from)),
    );
    let (clients, since) = ([earlier.hold.client, later.hold.client], earlier.hold.word_before(*from));
    Violation::new(Broken::TwoHolders, name, &clients, since, (*from, *to), what)
}

/// Whether holders that are admitted one by one are too many together, as permits may be.
fn crowd(name: &str, beside: &[Beside<'_, '_, '_>], later: &Stretch<'_, '_>) -> Option<Violation> {
    let at_once = |at: Stamp| beside.iter().filter(move |beside| beside.from <= at && at < beside.to);
    let too_many = |at: Stamp| !later.mode.admits(at_once(at).map(|beside| beside.earlier.mode));
    let from = beside.iter().map(|beside| beside.from).filter(|from| too_many(*from)).min()?;
    // Holds that began meanwhile only make it longer.
    let to = beside.iter().map(|beside| beside.to).filter(|to| *to > from && !too_many(*to)).min();
    let to = to.unwrap_or(later.to);
    let crowd: Vec<_> = at_once(from).map(|beside| beside.earlier).collect();
    let others = crowd.iter().map(|stretch| {
        let Hold { client, token, .. } = stretch.hold;
        format!("{client}{}, token {token}", as_what(stretch.mode))
    });
    let what = format!(
        "{} while these still believed in theirs: {}; all did for {}",
        later.begins(name),
        others.collect::<Vec<_>>().join("; "),
        Span(to.since(from)),
    );
    let clients: Vec<_> = crowd.iter().chain([&later]).map(|stretch| stretch.hold.client).collect();
    let since = crowd.iter().map(|stretch| stretch.hold.word_before(from)).min().unwrap_or(from);
    Some(Violation::new(Broken::TooManyHolders, name, &clients, since, (from, to), what))
}

impl Stretch<'_, '_> {
    fn begins(&self, name: &str) -> String {
        let Hold { client, token, granted, .. } = self.hold;
        let verb = if self.from == *granted { "was granted" } else { "went on with" };
        format!("{client} {verb} {name:?}{} with token {token}", as_what(self.mode))
    }
}
