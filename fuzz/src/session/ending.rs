//! The end of a session: everybody leaves, and nothing may be left.

use sanlock_lease::name::Name;
use sanlock_manager::{Action, Command as Order, ConnId, Event, Setting};

use super::world::{Client, World};
use crate::data::Data;

/// Seconds after which everything must have come to its end: killing, draining and retries included.
const END_SECS: u64 = 3000;

impl World {
    /// Everybody leaves, everything under way comes to a good end, and the daemon is told to stop: then nothing is left.
    pub(super) fn finish(&mut self) {
        self.calm = true;
        let mut sound = Data::new(&[]);
        for second in 0..END_SECS {
            if self.exited {
                return;
            }
            self.now = self.now.plus_secs(1);
            self.event(Event::Tick);
            for conn in self.open.keys().copied().collect::<Vec<_>>() {
                self.close(conn);
            }
            for conn in self
                .closed
                .iter()
                .filter(|(_, c)| c.pid.is_some() && !c.pid_gone)
                .map(|(id, _)| *id)
                .collect::<Vec<_>>()
            {
                if let Some(client) = self.closed.get_mut(&conn) {
                    client.pid_gone = true;
                }
                self.event(Event::PidGone { conn });
            }
            for _ in 0..40 {
                for step in [Self::lockspace, Self::machine, Self::settle, Self::watch, Self::storage] {
                    step(self, &mut sound);
                }
                while !self.saves.is_empty() {
                    let (ls, serial) = self.saves.remove(0);
                    self.event(Event::RejoinSaved { ls, serial });
                }
            }
            if second == 2 {
                self.last_words();
            }
        }
        panic!("nothing ends: {:#?}", self.m);
    }

    /// What SET_CONFIG keeps a lockspace for is taken back, and the daemon is told to end.
    fn last_words(&mut self) {
        let names: Vec<Name> = self.m.lockspaces().map(|(_, lockspace)| lockspace.spec.name).collect();
        for lockspace in names {
            for setting in [Setting::Used(false), Setting::UsedByOrphans(false)] {
                let mut out = Vec::new();
                let conn = ConnId(u64::MAX);
                self.m.handle(self.now, Event::ConnOpened { conn, ci: 900 }, &mut out);
                let command = Order::SetConfig { lockspace, setting: Some(setting) };
                self.m.handle(self.now, Event::Command { conn, command }, &mut out);
                self.m.handle(self.now, Event::ConnClosed { conn }, &mut out);
                out.retain(|action| {
                    !matches!(
                        action,
                        Action::Reply { conn: ConnId(u64::MAX), .. }
                            | Action::Forget { conn: ConnId(u64::MAX) }
                    )
                });
                for action in out {
                    if let Some(event) = self.take(action) {
                        self.event(event);
                    }
                }
            }
        }
        let held = self.m.resources().find(|(_, resource)| !resource.tokens().is_empty());
        assert!(held.is_none(), "held by nobody: {held:?}");
        assert!(self.m.conns().next().is_none(), "connections whose clients are gone: {:#?}", self.m);
        let conn = ConnId(u64::MAX - 1);
        self.open.insert(conn, Client::default());
        self.event(Event::ConnOpened { conn, ci: 901 });
        self.event(Event::Command { conn, command: Order::Shutdown { force: true } });
        self.close(conn);
    }
}
