//! A read of hosts that fails is read again in parts: groups of hosts, then the hosts of a group one by one, so that a sector that cannot be
//! read hides nobody but its own host (docs/decisions/0022-unreadable-sectors.md).

use crate::hosts::HOSTS_PER_GROUP;
use crate::timing::MonoTime;
use std::ops::Range;

/// What has failed, and is being read in parts. Hosts by their zero-based indices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Split {
    /// The piece that it is of, and whether all of it is wanted; else the groups in which a host id was ever used are.
    pub(super) piece: usize,
    pub(super) whole: bool,
    /// When what has failed was asked for.
    pub(super) asked: MonoTime,
    /// Whether a host of it could not be read.
    pub(super) missed: bool,
    /// Those that are read one by one, those whose groups come next, and those that come after them because it did not begin there.
    ones: Range<usize>,
    left: Range<usize>,
    before: Range<usize>,
}

/// Where the group of this host ends.
fn group_end(host: usize) -> usize {
    (host / HOSTS_PER_GROUP + 1) * HOSTS_PER_GROUP
}

impl Split {
    /// The hosts begin with a group. `from`: the host to begin at, by itself, if it is one of them; after the last one come those before it.
    pub(super) fn new(
        piece: usize,
        whole: bool,
        hosts: Range<usize>,
        asked: MonoTime,
        from: Option<usize>,
    ) -> Self {
        // As a group they have just failed, if they are no more than one.
        let by_itself = (hosts.len() <= HOSTS_PER_GROUP).then_some(hosts.start);
        let (ones, left, before) = match from.filter(|from| hosts.contains(from)).or(by_itself) {
            Some(from) => {
                let end = group_end(from).min(hosts.end);
                (from..end, end..hosts.end, hosts.start..from)
            }
            None => (0..0, hosts, 0..0),
        };
        Self { piece, whole, asked, missed: false, ones, left, before }
    }

    /// The next part; of groups only those that are `wanted`.
    pub(super) fn next(&mut self, wanted: impl Fn(&Range<usize>) -> bool) -> Option<Range<usize>> {
        loop {
            if let Some(one) = self.ones.next() {
                return Some(one..one + 1);
            }
            if self.left.is_empty() {
                self.left = std::mem::take(&mut self.before);
            }
            let first = self.left.next()?;
            let group = first..group_end(first).min(self.left.end);
            self.left.start = group.end;
            if !self.whole && !wanted(&group) {
                continue;
            }
            if group.len() == HOSTS_PER_GROUP {
                return Some(group);
            }
            // The beginning of the group in which it began, or the last one of the area.
            self.ones = group;
        }
    }

    /// A part could not be read.
    pub(super) fn failed(&mut self, part: Range<usize>) {
        if part.len() > 1 {
            self.ones = part;
        } else {
            self.missed = true;
        }
    }
}
