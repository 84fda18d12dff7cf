//! When the watchdog stands behind a lockspace (lease-algorithms.md 10.3; rules R3, R11; wdmd.md 11).
//!
//! Each lockspace is a source of its own with wdmd. It gives wdmd an expiry time only while something depends on the host id:
//! a resource that is held, or being acquired or released, or that a write may still reach, an orphan if orphans count
//! (USED_BY_ORPHANS), or the USED flag. Then the
//! machine is reset unless renewals go on or the users are stopped in time. A lockspace on which nothing depends never leads
//! to a reset.
//!
//! Before the first write of the first acquire the expiry is confirmed by wdmd, so there is no moment at which a lease is ours
//! and no watchdog knows of it; it is taken back after the last release has ended, all its writes included.

use crate::action::Action;
use crate::ids::LockspaceId;
use crate::killing::late_from;
use crate::state::{OpKind, OpNumber};
use crate::{Level, Lockspace, LockspaceList, Manager, Resource, ResourceList, log, reply};
use sanlock_lease::code::ReturnCode;
use sanlock_lease::text::LockspaceSpec;
use sanlock_lease::timing::MonoTime;
use std::collections::BTreeSet;

/// Seconds between 6T and wdmd's test interval below which an io timeout is warned about: a late renewal then looks like none
/// (rule R11).
const SLACK_SECS: u64 = 2;

/// Bytes of a name at wdmd, which the original cuts there (wdmd.md 11.2).
const WDMD_NAME_BYTES: usize = 127;

/// What is between a lockspace and the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The daemon uses no watchdog.
    Off,
    /// wdmd is being asked whether there is one; the join waits.
    Checking,
    /// There is one; nothing depends on it.
    Idle,
    /// wdmd was given an expiry and has not confirmed it.
    Arming,
    /// wdmd has an expiry, and every good renewal moves it.
    Armed,
    /// wdmd was lost while armed: the machine will be reset within the fire timeout, and nobody can stop that.
    Lost,
}

impl Manager {
    /// How a new lockspace begins.
    pub(crate) fn new_watch(&self) -> Watch {
        if self.settings.watchdog { Watch::Checking } else { Watch::Off }
    }

    /// Begins a join: at once, or with the question whether there is a watchdog.
    pub(crate) fn begin_join(&mut self, ls: LockspaceId, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get(&ls) else { return };
        match lockspace.watch {
            Watch::Checking => out.push(Action::WatchdogCheck { ls, fire: self.settings.fire }),
            _ => out.push(join_action(ls, lockspace)),
        }
    }

    /// wdmd answered: its test interval in seconds, or why it cannot be used.
    pub(crate) fn watchdog_checked(
        &mut self,
        ls: LockspaceId,
        result: Result<u32, String>,
        out: &mut Vec<Action>,
    ) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        if lockspace.watch != Watch::Checking {
            return;
        }
        let name = lockspace.spec.name;
        let refused = match result {
            _ if lockspace.remove => Some((ReturnCode::ERROR, "removed before it began".to_owned())),
            Err(text) => Some((ReturnCode::WD_ERROR, text)),
            Ok(interval) => {
                let (budget, interval) = (lockspace.io_timeout.renewal_warn_secs(), u64::from(interval));
                let io_timeout = lockspace.io_timeout.secs();
                if budget <= interval {
                    let text = format!(
                        "io timeout {io_timeout} is too short for wdmd, which tests every {interval} s: six times the io \
                         timeout must be more. Use a longer io timeout (-o), or a shorter watchdog_fire_timeout on all hosts"
                    );
                    Some((ReturnCode::EINVAL, text))
                } else {
                    if budget <= interval + SLACK_SECS {
                        let text = format!(
                            "io timeout {io_timeout} leaves little time between two tests of wdmd ({interval} s): \
                             a late renewal may look like none"
                        );
                        log(out, Level::Error, Some(ls), text);
                    }
                    None
                }
            }
        };
        match refused {
            None => {
                lockspace.watch = Watch::Idle;
                out.push(join_action(ls, lockspace));
            }
            Some((code, text)) => {
                log(out, Level::Error, Some(ls), format!("add_lockspace {name}: {text} ({})", code.0));
                let waiter = lockspace.add_waiter.take();
                self.forget_lockspace(ls, out);
                if let Some(conn) = waiter {
                    reply(out, conn, code.0);
                }
            }
        }
    }

    /// The same for what nobody holds yet: nothing new begins where the device has failed.
    ///
    /// # Errors
    /// As below, or wdmd says that its device does not work.
    pub(crate) fn require_protection(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        out: &mut Vec<Action>,
    ) -> Result<bool, ReturnCode> {
        match self.lockspaces.get(&ls) {
            Some(lockspace) if lockspace.watch == Watch::Armed && !lockspace.protected => {
                Err(ReturnCode::WD_ERROR)
            }
            _ => self.require_watchdog(now, ls, out),
        }
    }

    /// Whether a first write in this lockspace may be prepared now: `Ok(false)` says to wait for the watchdog.
    ///
    /// # Errors
    /// The watchdog cannot stand behind it: renewals fail, one is late, or wdmd was lost.
    pub(crate) fn require_watchdog(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        out: &mut Vec<Action>,
    ) -> Result<bool, ReturnCode> {
        let required = self.require_watchdog_quietly(now, ls, out);
        let idle = |ls: &&Lockspace| ls.watch == Watch::Idle;
        if let (Err(_), Some(lockspace)) = (required, self.lockspaces.get(&ls).filter(idle)) {
            let age = now.secs_since(lockspace.last_good.unwrap_or(now));
            let text = format!(
                "nothing is acquired now: the last good renewal is {age} s old and the last attempt that has ended came to {}; \
                 the watchdog is armed again once a renewal succeeds",
                lockspace.last_result
            );
            log(out, Level::Error, Some(ls), text);
        }
        required
    }

    /// The same, without saying why not.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn require_watchdog_quietly(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        out: &mut Vec<Action>,
    ) -> Result<bool, ReturnCode> {
        let lockspace = self.lockspaces.get_mut(&ls).ok_or(ReturnCode::ENOSPC)?;
        match lockspace.watch {
            Watch::Off | Watch::Armed => Ok(true),
            Watch::Arming => Ok(false),
            Watch::Checking | Watch::Lost => Err(ReturnCode::WD_ERROR),
            Watch::Idle => {
                let last_good = lockspace.last_good.unwrap_or(now);
                if !renews(now, lockspace) {
                    return Err(ReturnCode::WD_ERROR);
                }
                lockspace.watch = Watch::Arming;
                let (renewal, expire) = times(lockspace, last_good);
                out.push(Action::WatchdogArm {
                    ls,
                    name: wdmd_name(&lockspace.spec),
                    fire: self.settings.fire,
                    renewal,
                    expire,
                });
                Ok(false)
            }
        }
    }

    /// wdmd confirmed the expiry, or could not be brought to it. Either way it keeps none that nobody would move.
    pub(crate) fn watchdog_armed(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        result: Result<(), String>,
        out: &mut Vec<Action>,
    ) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls).filter(|ls| ls.watch == Watch::Arming) else {
            return;
        };
        // wdmd may have taken its time. Nothing has begun so far, so the lockspace may still stay idle.
        let result = match result {
            Ok(()) if !renews(now, lockspace) => {
                out.push(Action::WatchdogDisarm { ls });
                Err("a renewal failed or is late by now".to_owned())
            }
            other => other,
        };
        lockspace.watch = if result.is_ok() { Watch::Armed } else { Watch::Idle };
        lockspace.protected = true;
        if let Err(text) = &result {
            log(out, Level::Error, Some(ls), format!("the watchdog cannot be armed: {text}"));
            self.put_releases_off(now, ls);
        }
        self.answer_used(ls, result.is_err().then_some(ReturnCode::WD_ERROR), out);
        self.index_armed(ls, result.as_ref().map(drop).map_err(|_| ReturnCode::WD_ERROR), out);
        self.acquires_armed(now, ls, result.is_err().then_some(ReturnCode::WD_ERROR), out);
    }

    /// wdmd says whether its device would reset this host in time. If not, nothing new begins that might need it: nobody would be stopped in
    /// time if renewals failed and a process could not be killed. What is held stays, since renewals go on.
    pub(crate) fn watchdog_status(&mut self, ls: LockspaceId, protects: bool, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get_mut(&ls).filter(|ls| ls.watch == Watch::Armed) else {
            return;
        };
        if std::mem::replace(&mut lockspace.protected, protects) == protects {
            return;
        }
        let name = lockspace.spec.name;
        let (level, text) = if protects {
            (
                Level::Warning,
                format!(
                    "the watchdog device stands behind lockspace {name} again: leases are acquired as before"
                ),
            )
        } else {
            let text = format!(
                "the watchdog device does not work: nothing would reset this host in time for lockspace {name}. What is held stays, and is renewed; \
                 nothing more is acquired in it ({}). See the log of wdmd, move what runs here to another host, and restart this one",
                ReturnCode::WD_ERROR.0
            );
            (Level::Error, text)
        };
        log(out, level, Some(ls), text);
    }

    /// The connection to wdmd broke while it had an expiry of this lockspace.
    pub(crate) fn watchdog_lost(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        text: &str,
        out: &mut Vec<Action>,
    ) {
        let fire = self.settings.fire.secs();
        let Some(lockspace) = self.lockspaces.get_mut(&ls) else { return };
        if lockspace.watch != Watch::Armed {
            return;
        }
        lockspace.watch = Watch::Lost;
        lockspace.watch_lost = Some(now);
        let text = format!(
            "wdmd was lost: {text}. This machine is reset, at the latest {fire} s after the last expiry that wdmd was told; its users are stopped so that they end in order"
        );
        log(out, Level::Error, Some(ls), text);
        self.check(now, ls, out);
    }

    /// Moves wdmd's expiry after a good renewal.
    pub(crate) fn watchdog_live(&self, ls: LockspaceId, timestamp: MonoTime, out: &mut Vec<Action>) {
        let Some(lockspace) = self.lockspaces.get(&ls) else { return };
        if matches!(lockspace.watch, Watch::Arming | Watch::Armed) {
            let (renewal, expire) = times(lockspace, timestamp);
            out.push(Action::WatchdogLive { ls, renewal, expire });
        }
    }

    /// Takes the expiry back wherever nothing depends on the host id any more.
    pub(crate) fn disarm_idle(&mut self, out: &mut Vec<Action>) {
        let armed = |ls: &Lockspace| ls.watch == Watch::Armed && !ls.used;
        let mut idle: BTreeSet<LockspaceId> =
            self.lockspaces.iter().filter(|(_, ls)| armed(ls)).map(|(id, _)| *id).collect();
        for op in self.ops.values() {
            if let OpKind::Acquire { takings, .. } = &op.kind {
                takings.arming().for_each(|ls| _ = idle.remove(&ls));
            }
        }
        self.index_watched().for_each(|ls| _ = idle.remove(&ls));
        for resource in self.resources.values() {
            // As a rule a few are enough to show that none is idle.
            if idle.is_empty() {
                return;
            }
            if idle.contains(&resource.ls) && self.depends(resource) {
                idle.remove(&resource.ls);
            }
        }
        for ls in idle {
            if let Some(lockspace) = self.lockspaces.get_mut(&ls) {
                lockspace.watch = Watch::Idle;
                out.push(Action::WatchdogDisarm { ls });
            }
        }
    }

    /// Whether a resource needs this host to be stopped in time. An orphan that does not count (lease-algorithms.md 9.4) does not,
    /// unless something about it is still being written.
    fn depends(&self, resource: &Resource) -> bool {
        let idle = resource.list() == ResourceList::Orphan
            && !resource.erase
            && resource.converting.is_none()
            && resource.unsettled.is_none();
        !idle || self.lockspaces.get(&resource.ls).is_some_and(|ls| ls.used_by_orphans)
    }

    /// The lockspace is being left: nobody uses it, and no write of it is outstanding.
    pub(crate) fn watchdog_leaves(&mut self, now: MonoTime, ls: LockspaceId, out: &mut Vec<Action>) {
        if let Some(lockspace) = self.lockspaces.get_mut(&ls) {
            if matches!(lockspace.watch, Watch::Arming | Watch::Armed) {
                lockspace.watch = Watch::Idle;
                out.push(Action::WatchdogDisarm { ls });
            }
        }
        self.answer_used(ls, Some(ReturnCode::ENOSPC), out);
        self.index_armed(ls, Err(ReturnCode::ENOSPC), out);
        self.acquires_armed(now, ls, Some(ReturnCode::ENOSPC), out);
    }

    /// The requests that waited for this lockspace's watchdog wait no more.
    fn acquires_armed(
        &mut self,
        now: MonoTime,
        ls: LockspaceId,
        refused: Option<ReturnCode>,
        out: &mut Vec<Action>,
    ) {
        let mut waited: Vec<OpNumber> = Vec::new();
        for (number, op) in &mut self.ops {
            if let OpKind::Acquire { takings, .. } = &mut op.kind {
                let (any, stopped) = takings.armed(ls, refused.map(|code| code.0));
                out.extend(stopped.into_iter().map(|task| Action::ClientGone { task }));
                if any {
                    waited.push(*number);
                }
            }
        }
        for number in waited {
            self.acquire_next(now, number, out);
        }
    }
}

/// Whether an idle lockspace may be given an expiry: its last renewal succeeded and none is late.
///
/// One that is late has been under way for an io timeout, longer than its read may take: its write hangs, of which nothing is heard before
/// it ends. With an expiry, what was only asked for could lead to a reset; and what began now would have less time than it may need.
/// A join ends with a renewal of up to 4T ago: its first one after that is late as it is itself under way for an io timeout.
fn renews(now: MonoTime, lockspace: &Lockspace) -> bool {
    let has_just_joined = |at: MonoTime| now.millis_since(at) < lockspace.io_timeout.millis();
    let late = late_from(lockspace).is_some_and(|late| now.secs() >= late)
        && !lockspace.joined_at.is_some_and(has_just_joined);
    lockspace.last_result == 1 && !late
}

fn join_action(ls: LockspaceId, lockspace: &Lockspace) -> Action {
    debug_assert_eq!(lockspace.list, LockspaceList::Add);
    Action::Join { ls, spec: lockspace.spec.clone(), host: lockspace.host, io_timeout: lockspace.io_timeout }
}

/// The lockspace's name at wdmd. A name of bytes that are no text is longer as text than it was.
pub(crate) fn wdmd_name(spec: &LockspaceSpec) -> String {
    let mut name = format!("sanlock_{}:{}", spec.name, spec.host_id);
    let end = (0..=WDMD_NAME_BYTES.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    name.truncate(end.unwrap_or(0));
    name
}

/// Renewal and expiry for wdmd (wdmd.md 11.3): whole seconds of the clock of leases. Whoever sends them knows how far that of wdmd is behind it.
fn times(lockspace: &Lockspace, renewal: MonoTime) -> (u64, u64) {
    (renewal.secs(), renewal.secs() + lockspace.io_timeout.renewal_fail_secs())
}
