//! The renewals of a lockspace as a row of bars.

use super::Look;
use crate::app::Health;
use crate::snapshot::Lockspace;
use ratatui::text::Span;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Where there is only ASCII.
const SIGNS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
/// An attempt that failed.
const FAILED: &str = "!";

/// The newest renewals that fit, the last one at the right; each failed attempt between them is a sign of its own.
pub(super) fn line(lockspace: &Lockspace, look: Look, width: usize) -> Vec<Span<'static>> {
    let limit = lockspace.io_timeout.map_or(1, |timeout| timeout.millis());
    let mut spans = Vec::new();
    for renewal in lockspace.renewals.iter().rev() {
        for _ in 0..renewal.failed_after() {
            if spans.len() >= width {
                break;
            }
            spans.push(Span::styled(FAILED, look.of(Health::Failed)));
        }
        if spans.len() >= width {
            break;
        }
        let level = level(renewal.read_ms.saturating_add(renewal.write_ms), limit);
        let sign = if look.unicode { BARS[level] } else { SIGNS[level] };
        let style = if level >= 6 { look.of(Health::Late) } else { look.of(Health::Joining) };
        spans.push(Span::styled(sign.to_string(), style));
    }
    spans.reverse();
    spans
}

/// 0 for up to a millisecond, 7 from the limit on, in powers between.
fn level(ms: u64, limit: u64) -> usize {
    if ms >= limit {
        return 7;
    }
    (1..7).rev().find(|&level| power(ms, 7) >= power(limit, level)).map_or(0, |level| level as usize)
}

/// Exact, and without floating point: `ms`⁷ ≥ `limit`ˡ says that log(ms) / log(limit) ≥ l / 7.
fn power(base: u64, exponent: u32) -> u128 {
    u128::from(base).saturating_pow(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_powers_up_to_the_limit() {
        // The seventh root of 10000 is 3.7.
        for (ms, expected) in
            [(0, 0), (1, 0), (3, 0), (4, 1), (13, 1), (14, 2), (52, 3), (9999, 6), (10_000, 7), (u64::MAX, 7)]
        {
            assert_eq!(level(ms, 10_000), expected, "{ms}");
        }
        assert_eq!(level(u64::MAX - 1, u64::MAX), 6);
    }
}
