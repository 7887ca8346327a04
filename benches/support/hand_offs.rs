//! The times of hand-offs, as multiples of what they are compared with.

use crate::support::{Way, record};
use std::ops::Range;

/// Prints all ways. Those after the ones in `bare` are compared with each of these.
pub(crate) fn report_hand_offs(store: &str, ways: &[Way], bare: Range<usize>) {
    let count = ways[0].rounds.len();
    println!("{store}: from release to the grant in another process, the median of {count}");
    let (others, ours) = ways.split_at(bare.end);
    let bare = &others[bare];
    for way in others {
        println!("{}", times(way));
    }
    for way in ours {
        let mut line = times(way);
        for other in bare {
            let [[own], [theirs]] = [way, other].map(|way| way.percentiles([50]));
            let ratio = format!("{:.2}", own.as_secs_f64() / theirs.as_secs_f64());
            let unit = format!("times {}", other.name);
            line = format!("{line}, {ratio} {unit}");
            record(&format!("{store}: from release to grant, {}", way.name), &ratio, &unit, &[way, other]);
        }
        println!("{line}");
    }
}

fn times(way: &Way) -> String {
    let [low, median, high, last] = way.percentiles([10, 50, 90, 99]);
    format!(
        "  {:<24} {median:>10.2?} (tenth to ninetieth percentile: {low:.2?} to {high:.2?}, ninety-ninth: {last:.2?})",
        way.name
    )
}
