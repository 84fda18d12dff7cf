//! Tables of cases.

/// Collects differences of a table of cases so that one run shows them all; fails when dropped.
#[derive(Debug, Default)]
pub struct Table(Vec<String>);

impl Table {
    /// Notes a difference.
    pub fn expect<T: PartialEq + std::fmt::Debug>(&mut self, case: &str, actual: T, expected: T) {
        if actual != expected {
            self.0.push(format!("{case}: expected {expected:?}, got {actual:?}"));
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "{}", self.0.join("\n"));
        }
    }
}
