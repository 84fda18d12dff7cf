//! The records of RENEWAL as numbers (socket-protocol.md 7.32).

use sanlock_wire::StateRecord;

/// One renewal that succeeded, and what happened between it and the next one that did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Renewal {
    /// When it began, in seconds of the daemon's monotonic clock.
    pub timestamp: u64,
    /// How long the read took, in milliseconds.
    pub read_ms: u64,
    /// How long the write took, in milliseconds.
    pub write_ms: u64,
    /// Attempts after it that timed out.
    pub next_timeouts: u64,
    /// Attempts after it that failed otherwise.
    pub next_errors: u64,
}

impl Renewal {
    /// The attempts after it that failed.
    #[must_use]
    pub const fn failed_after(&self) -> u64 {
        self.next_timeouts.saturating_add(self.next_errors)
    }
}

/// What is missing in a record, or is no number, counts as 0, as `sanlock client renewal` prints it.
impl From<&StateRecord> for Renewal {
    fn from(record: &StateRecord) -> Self {
        let number = |key| {
            let value = record.get(key).and_then(|value| std::str::from_utf8(value).ok());
            value.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        Self {
            timestamp: number("timestamp"),
            read_ms: number("read_ms"),
            write_ms: number("write_ms"),
            next_timeouts: number("next_timeouts"),
            next_errors: number("next_errors"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_wire::StateText;

    #[test]
    fn numbers_of_a_record() {
        let text = StateText::new().item("timestamp", 7).item("read_ms", 2).item("write_ms", "x");
        let renewal = Renewal::from(&StateRecord::renewal(7, text.item("next_errors", 3)));
        assert_eq!(renewal, Renewal { timestamp: 7, read_ms: 2, next_errors: 3, ..Renewal::default() });
        assert_eq!(renewal.failed_after(), 3);
    }
}
