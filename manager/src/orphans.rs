//! Orphans: leases that stay owned on disk after their process has ended (lease-algorithms.md 7.3, socket-protocol.md 7.7, 7.8).
//!
//! A resource whose last token asked for it (PERSISTENT) stays held, without a token, when the connection of that token closes. A
//! later acquire may adopt it, or it is released by name. Orphans of a lockspace end with it, unless USED_BY_ORPHANS makes them
//! count: then the lockspace, also a failed one, does not end before they are gone.

use crate::action::Action;
use crate::event::OrphanUse;
use crate::ids::{ConnId, LockspaceId, ResourceId};
use crate::killing::look;
use crate::state::{Resource, ResourceList, Token, Work};
use crate::{Level, Manager, log};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::name::Name;
use sanlock_lease::text::ResourceSpec;
use sanlock_lease::timing::MonoTime;

/// What this host already has under the name of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// Nothing: the lease is taken from disk.
    Nothing,
    /// Only a release that waits, of a lease whose path leads nowhere: the acquire takes its place ([`gone`](crate::gone)).
    InsteadOf(ResourceId),
    /// It is held shared: one more holder joins.
    Join(ResourceId),
    /// An orphan of the same mode.
    Adopt(ResourceId),
}

impl Manager {
    /// Whether a lockspace has orphans, those included that are about to be adopted.
    pub(crate) fn has_orphans(&self, ls: LockspaceId) -> bool {
        self.resources.values().inspect(|_| look()).any(|r| r.ls == ls && r.is_orphan())
    }

    /// What this host already has under that name decides first (lease-algorithms.md 7.2).
    pub(crate) fn local_state(&self, spec: &ResourceSpec, orphan: OrphanUse) -> Result<Local, ReturnCode> {
        let same = |r: &Resource| r.spec.names() == spec.names();
        let found = self.resources.iter().find(|(_, r)| same(r));
        // Of what is about to be given up no orphan is left, wherever its disk is.
        let gone = found.filter(|(_, r)| orphan != OrphanUse::Only && r.makes_room_for(spec));
        let Some((id, found)) = found.filter(|_| gone.is_none()) else {
            if orphan == OrphanUse::Only {
                return Err(ReturnCode::ENOENT);
            }
            let renamed = self.resources.values().find(|r| r.stands_for(spec));
            return match renamed.map(|found| &found.work) {
                None => Ok(gone.map_or(Local::Nothing, |(id, _)| Local::InsteadOf(*id))),
                // As far as this host knows the name is wrong, and as a rule the disk would say so too.
                Some(Work::Held { .. }) => Err(ReturnCode::LEADER_RESOURCE),
                Some(_) => Err(ReturnCode::EAGAIN),
            };
        };
        match found.work {
            Work::Acquiring { .. } => Err(ReturnCode::EBUSY),
            // Which mode it will be in is open.
            Work::Held { .. } if found.converting.is_some() => Err(ReturnCode::EAGAIN),
            Work::Held { .. } if found.list() == ResourceList::Orphan => {
                if orphan == OrphanUse::Refuse || found.spec.shared != spec.shared {
                    Err(ReturnCode::EUCLEAN)
                } else {
                    Ok(Local::Adopt(*id))
                }
            }
            // Somebody is adopting it, and may not get it.
            Work::Held { .. } if found.is_orphan() => Err(ReturnCode::EBUSY),
            Work::Held { .. } if found.spec.shared && spec.shared => Ok(Local::Join(*id)),
            // Also one that is acquired but not granted yet: the same resource twice in a request.
            Work::Held { .. } => Err(ReturnCode::EEXIST),
            Work::Releasing { .. } | Work::Settling { .. } | Work::Retry { .. } => Err(ReturnCode::EAGAIN),
        }
    }

    /// Gives a resource that is held already one more token, which is granted with the rest of its request.
    pub(crate) fn add_holder(&mut self, id: ResourceId, token: Token) -> Result<(), ReturnCode> {
        let Some(Resource { ls, work: Work::Held { tokens, .. }, .. }) = self.resources.get_mut(&id) else {
            return Err(ReturnCode::EAGAIN);
        };
        if !self.lockspaces.get(ls).is_some_and(crate::Lockspace::usable) {
            return Err(ReturnCode::ENOSPC);
        }
        tokens.push(token);
        Ok(())
    }

    /// Whether a resource that has just lost its last token stays without one. `ended`: because the client is gone. Says so.
    pub(crate) fn becomes_orphan(
        &self,
        resource: &Resource,
        last: Option<Token>,
        ended: bool,
        out: &mut Vec<Action>,
    ) -> bool {
        let Some(token) = last else { return false };
        if !matches!(resource.work, Work::Held { .. }) {
            return false;
        }
        if token.adopts && !token.granted {
            // The request failed, so it changes nothing.
            return true;
        }
        ended && token.granted && token.persistent && self.is_left_behind(resource, out)
    }

    /// Whether what a process leaves behind, and wanted to persist, stays owned without it. Says so.
    fn is_left_behind(&self, resource: &Resource, out: &mut Vec<Action>) -> bool {
        // In a dead lockspace the host_id lease speaks for whatever no process holds, unless orphans count as users: what the
        // orphan stands for may go on without a process, and then the lockspace must not end.
        let counts =
            self.lockspaces.get(&resource.ls).is_some_and(|ls| ls.dead.is_none() || ls.used_by_orphans);
        if counts {
            let text = format!("{}:{} is an orphan now", resource.spec.lockspace, resource.spec.name);
            log(out, Level::Warning, Some(resource.ls), text);
        }
        counts
    }

    /// Begins the release of orphans: of one name, or of all. Their number. The watchdog may not stand behind an orphan, and a
    /// release writes, so it may have to be armed first.
    pub(crate) fn release_orphans(
        &mut self,
        now: MonoTime,
        lockspace: Name,
        name: Option<Name>,
        out: &mut Vec<Action>,
    ) -> i32 {
        // An orphan ends with its lockspace, and no other one has that name before it is gone.
        let named = self.lockspaces.iter().find(|(_, ls)| ls.spec.name == lockspace);
        let Some((ls, usable)) = named.map(|(id, ls)| (*id, ls.usable())) else { return 0 };
        let wanted = |r: &Resource| {
            r.list() == ResourceList::Orphan && r.ls == ls && name.is_none_or(|name| r.spec.name == name)
        };
        let found: Vec<ResourceId> =
            self.resources.iter().filter(|(_, r)| wanted(r)).map(|(id, _)| *id).collect();
        let ready = found.is_empty() || !usable || self.require_watchdog(now, ls, out) == Ok(true);
        for id in &found {
            if ready {
                self.give_up(*id, None, None, out);
            } else if let Some(resource) = self.resources.get_mut(id) {
                resource.note_hold();
                resource.work = match resource.converting.or(resource.unsettled) {
                    Some(task) => Work::Settling { task },
                    None => Work::Retry { at: now },
                };
            }
        }
        i32::try_from(found.len()).unwrap_or(i32::MAX)
    }

    /// The client of so many tokens is gone: its lease goes, or stays as an orphan.
    pub(crate) fn release_ended_client(
        &mut self,
        id: ResourceId,
        conn: ConnId,
        number: usize,
        out: &mut Vec<Action>,
    ) {
        let Some(resource) = self.resources.get_mut(&id) else { return };
        let last = match resource.drop_granted(conn, number) {
            Err(last) => last,
            Ok(dropped) => {
                // Whoever is about to join in may not get it. Until then it is what the last holder left.
                let left = matches!(dropped, Some(Token { granted: true, persistent: true, .. }));
                let Some(resource) = self.resources.get(&id).filter(|r| left && !r.is_granted()) else {
                    return;
                };
                if self.is_left_behind(resource, out) {
                    if let Some(Resource { work: Work::Held { tokens, .. }, .. }) =
                        self.resources.get_mut(&id)
                    {
                        tokens.iter_mut().for_each(|t| t.adopts = true);
                    }
                }
                return;
            }
        };
        let Some(resource) = self.resources.get(&id) else { return };
        if !self.becomes_orphan(resource, last, true, out) {
            self.give_up(id, None, None, out);
        }
    }
}
