//! Connections and the processes behind them (socket-protocol.md 2).

use crate::ids::ConnId;
use crate::state::{Op, OpKind, OpNumber, Resource};
use crate::{Action, Level, Manager, Reply, Target, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::name::Name;
use sanlock_lease::text::ResourceSpec;
use std::collections::BTreeMap;

/// RESTRICT_ALL: nothing this connection sends is answered any more.
const RESTRICT_ALL: u32 = 0x1;

impl Manager {
    pub(crate) fn register(&mut self, conn: ConnId, pid: i32, out: &mut Vec<Action>) {
        let Some(client) = self.conns.get_mut(&conn) else { return };
        if client.pid.is_some() {
            // The original loses track of the leases here; a repeated REGISTER changes nothing.
            log(out, Level::Debug, None, format!("client {} registers again", client.ci));
            return;
        }
        client.pid = Some(pid);
        client.owner_name = Name::new(pid.to_string().as_bytes()).ok();
    }

    pub(crate) fn restrict(&mut self, conn: ConnId, flags: u32, out: &mut Vec<Action>) {
        if let Some(client) = self.conns.get_mut(&conn) {
            client.restricted = flags;
        }
        reply(out, conn, 0);
    }

    /// Whether this connection asked to be ignored.
    #[must_use]
    pub fn is_muted(&self, conn: ConnId) -> bool {
        self.conns.get(&conn).is_some_and(|c| c.restricted & RESTRICT_ALL != 0)
    }

    /// The connection a lease command is for, after the checks of socket-protocol.md 2.6, in that order.
    pub(crate) fn find_target(
        &self,
        conn: ConnId,
        target: Target,
        acquire: bool,
    ) -> Result<ConnId, ReturnCode> {
        let found = match target {
            Target::Own => conn,
            Target::Pid(pid) => self
                .conns
                .iter()
                .filter(|(_, c)| c.pid == Some(pid))
                // A process that is known to be gone may have left its connection to a descendant, and its pid to another process.
                .min_by_key(|(_, c)| (c.closed, c.pid_gone, c.ci))
                .map(|(id, _)| *id)
                .ok_or(ReturnCode::ESRCH)?,
        };
        let client = self.conns.get(&found).ok_or(ReturnCode::EBUSY)?;
        let registered = client.pid.is_some_and(|pid| pid > 0);
        if !registered || client.closed || (acquire && client.kill_count > 0) || client.busy.is_some() {
            return Err(ReturnCode::EBUSY);
        }
        Ok(found)
    }

    pub(crate) fn refused(
        &mut self,
        conn: ConnId,
        target: Target,
        acquire: bool,
        code: i32,
        out: &mut Vec<Action>,
    ) {
        let code = match self.find_target(conn, target, acquire) {
            Ok(_) => code,
            Err(e) => e.0,
        };
        reply(out, conn, code);
    }

    pub(crate) fn inquire(&mut self, conn: ConnId, target: Target, out: &mut Vec<Action>) {
        let target = match self.find_target(conn, target, false) {
            Ok(target) => target,
            Err(e) => return reply(out, conn, e.0),
        };
        let held: Vec<ResourceSpec> = self
            .conns
            .get(&target)
            .into_iter()
            .flat_map(|c| c.held().collect::<Vec<_>>())
            .filter_map(|r| self.resources.get(&r))
            .map(|r| ResourceSpec { lver: Some(r.lver), ..r.spec.clone() })
            .collect();
        out.push(Action::Reply { conn, reply: Reply::Held(held) });
    }

    /// Starts a command on a target's leases.
    pub(crate) fn begin_op(&mut self, requester: ConnId, target: ConnId, kind: OpKind) -> OpNumber {
        let number = OpNumber(self.next_id());
        if let Some(client) = self.conns.get_mut(&target) {
            client.busy = Some(number);
        }
        self.ops.insert(number, Op { requester: Some(requester), target, kind });
        number
    }

    /// A process that is being stopped, and has given up in time what it had in lockspaces that have failed, is left alone (socket-protocol.md 7.8),
    /// whatever it holds in other ones: when these fail it is to be asked again.
    pub(crate) fn spare(&mut self, conn: ConnId, out: &mut Vec<Action>) {
        let Some(client) = self.conns.get_mut(&conn).filter(|client| client.kill_count > 0) else { return };
        let dead = |ls| self.lockspaces.get(&ls).is_some_and(|ls| ls.dead.is_some());
        let has = |r: &Resource| r.tokens().iter().any(|t| t.granted && t.conn == conn);
        if self.resources.values().any(|r| has(r) && dead(r.ls)) {
            return;
        }
        client.kill_count = 0;
        client.kill_last = None;
        client.kill_hard = false;
        if std::mem::take(&mut client.killpath_run) {
            out.push(Action::CancelKillpath { conn });
        }
    }

    /// Ends a command: the target is free, the requester gets its answer, and a target that died meanwhile is cleaned up.
    pub(crate) fn end_op(&mut self, number: OpNumber, code: i32, out: &mut Vec<Action>) {
        let Some(op) = self.ops.remove(&number) else { return };
        let mut closed = false;
        if let Some(client) = self.conns.get_mut(&op.target) {
            client.busy = None;
            closed = client.closed;
        }
        self.spare(op.target, out);
        if let Some(requester) = op.requester {
            reply(out, requester, code);
        }
        if closed {
            self.clean_up(op.target, out);
        }
    }

    pub(crate) fn conn_closed(&mut self, conn: ConnId, out: &mut Vec<Action>) {
        for op in self.ops.values_mut() {
            if op.requester == Some(conn) {
                // The command goes on; only the answer is lost (2.5).
                op.requester = None;
            }
        }
        let plain = self.conns.get(&conn).is_some_and(|client| client.pid.is_none());
        for ls in self.lockspaces.values_mut() {
            if plain {
                ls.used_waiter_closed(conn);
            }
            ls.add_waiter = ls.add_waiter.filter(|w| *w != conn);
            ls.events.drop_stream(conn);
            ls.used_waiters.retain(|(w, _)| *w != Some(conn));
            ls.rem_waiters.retain(|w| *w != conn);
            ls.inq_waiters.retain(|w| *w != conn);
        }
        self.shutdown_waiters.retain(|w| *w != conn);
        let Some(client) = self.conns.get_mut(&conn) else { return };
        client.closed = true;
        match client.busy {
            Some(number) => self.target_closed(number, out),
            None => self.clean_up(conn, out),
        }
    }

    /// The target of a running command hung up: an acquire or a conversion in progress is told, and the command cleans up at its end. What the
    /// target holds besides goes now: the command may wait for another lockspace's disk for long, while that of what is held
    /// fails and its watchdog stays armed for nobody.
    fn target_closed(&mut self, number: OpNumber, out: &mut Vec<Action>) {
        let Some(op) = self.ops.get(&number) else { return };
        match &op.kind {
            OpKind::Acquire { takings, .. } => {
                out.extend(takings.running().map(|task| Action::ClientGone { task }));
            }
            OpKind::Convert { task } => out.push(Action::ClientGone { task: *task }),
            OpKind::Granting { .. } | OpKind::Release { .. } => {}
        }
        self.give_up_held(op.target, Some(number), out);
    }

    pub(crate) fn pid_gone(&mut self, conn: ConnId, out: &mut Vec<Action>) {
        let Some(client) = self.conns.get_mut(&conn) else { return };
        client.pid_gone = true;
        if client.closed {
            match client.busy {
                Some(number) => self.target_closed(number, out),
                None => self.clean_up(conn, out),
            }
            return;
        }
        // A program that has not been started yet would be told a pid that may be another process's by then.
        if client.killpath_pid && client.killpath_run {
            out.push(Action::CancelKillpath { conn });
        }
        // An open connection keeps its leases: a descendant of the process may hold a copy and still use the disk. The record
        // is to say so, and nothing more is granted on this connection before it does.
        for ls in self.lockspaces.keys().copied().collect::<Vec<_>>() {
            let Some(lockspace) = self.lockspaces.get_mut(&ls) else { continue };
            if let Some(serial) = lockspace.rejoin.get_mut(&conn) {
                *serial = lockspace.rejoin_asked + 1;
                self.save_rejoin(ls, false, out);
            }
        }
    }

    /// A closed connection that is not busy: its leases go, and it is forgotten unless it stays a user.
    fn clean_up(&mut self, conn: ConnId, out: &mut Vec<Action>) {
        if self.give_up_held(conn, None, out) {
            self.conns.remove(&conn);
            out.push(Action::Forget { conn });
        }
    }

    /// Gives up what a closed connection was granted, but for what a command works on that still runs. In a dead lockspace it stays a user until
    /// its process is gone too. Whether nothing is left.
    fn give_up_held(&mut self, conn: ConnId, running: Option<OpNumber>, out: &mut Vec<Action>) -> bool {
        let Some(client) = self.conns.get(&conn) else { return false };
        let held = client.held_of_each();
        let pid_gone = client.pid_gone || client.pid.is_none();
        let mut still_used = false;
        let mut gone = BTreeMap::new();
        for (id, number) in held {
            let Some(resource) = self.resources.get(&id) else { continue };
            if running.is_some() && resource.for_op == running {
                still_used = true;
                continue;
            }
            let dead = self.lockspaces.get(&resource.ls).is_none_or(|ls| ls.dead.is_some());
            // In a dead one nothing may be written any more; the host_id lease speaks for it.
            if !dead || pid_gone {
                gone.insert(id, number);
                self.release_ended_client(id, conn, number, out);
            } else {
                still_used = true;
            }
        }
        if let Some(client) = self.conns.get_mut(&conn) {
            client.drop_tokens(gone);
        }
        !still_used
    }
}
