//! Nobody waits for ever: whoever has no reply when everything under way has ended waits for something that is still to come.

use super::*;

/// Seconds that this may take: a lockspace that fails on the way waits so long for writes that may still land.
const ROUNDS: u64 = DRAIN_SECS + 60;

impl World {
    /// Lets what is under way come to its end while every client stays, and time pass.
    pub(super) fn answer_all(&mut self) {
        for _ in 0..ROUNDS {
            if self.exited || (self.m.ops.is_empty() && self.forgotten().is_empty()) {
                return;
            }
            self.now = self.now.plus_secs(1);
            self.event(Event::Tick);
            for pick in 0..16 {
                for kind in [4, 6, 8, 9, 10] {
                    self.step((kind, pick, 102));
                }
            }
        }
        panic!("nobody tells {:?}, or these do not end: {:#?}", self.forgotten(), self.m.ops);
    }

    /// Clients that wait for a reply, and for nothing that could bring it.
    fn forgotten(&self) -> Vec<ConnId> {
        let waiting = self.open.iter().filter(|(_, client)| client.waits && !client.stream);
        waiting.map(|(conn, _)| *conn).filter(|conn| !self.waits_for_users(*conn)).collect()
    }

    /// Whether it asked for the end of a lockspace, or of the daemon, that processes use which go on, or what is set for others.
    fn waits_for_users(&self, conn: ConnId) -> bool {
        let ends = self.m.shutdown_waiters.contains(&conn);
        self.m.lockspaces().filter(|(_, ls)| ends || ls.rem_waiters.contains(&conn)).any(|(id, ls)| {
            let mut held = self.m.conns.values().flat_map(Conn::held);
            ls.used
                || (ls.used_by_orphans && self.m.has_orphans(id))
                || held.any(|held| self.m.resources.get(&held).is_some_and(|r| r.ls == id))
        })
    }
}
