//! User and group of the daemon (command-line.md 9.1).

use sanlock_sys::credentials::{GroupId, UserId, find_group, find_user, user_name};

use super::error::StartError;
use crate::config::Config;

/// User and group of the daemon unless configured, if both exist.
const DEFAULT_USER: &str = "sanlock";

/// Whom the daemon runs as.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) user: UserId,
    pub(super) group: GroupId,
    /// The user's name, for its groups.
    pub(super) user_name: Option<String>,
}

impl Identity {
    pub(super) fn of(config: &Config) -> Result<Self, StartError> {
        let user =
            |name: &str| find_user(name).map_err(|error| StartError::Lookup { name: name.to_owned(), error });
        let group = |name: &str| {
            find_group(name).map_err(|error| StartError::Lookup { name: name.to_owned(), error })
        };
        let default = match (user(DEFAULT_USER)?, group(DEFAULT_USER)?) {
            (Some(user), Some(group)) => Some((user, group)),
            _ => None,
        };
        let chosen_user = match &config.uname {
            Some(name) => {
                Some(user(name)?.ok_or_else(|| StartError::Unknown { kind: "user", name: name.clone() })?)
            }
            None => default.map(|(user, _)| user),
        };
        let chosen_group = match &config.gname {
            Some(name) => {
                Some(group(name)?.ok_or_else(|| StartError::Unknown { kind: "group", name: name.clone() })?)
            }
            None => default.map(|(_, group)| group),
        };
        let name = match (&config.uname, chosen_user) {
            // Groups have names as members. A number without a name is in none.
            (Some(name), Some(user)) if name.bytes().all(|byte| byte.is_ascii_digit()) => {
                let found =
                    user_name(user).map_err(|error| StartError::Lookup { name: name.clone(), error })?;
                Some(found.unwrap_or_else(|| name.clone()))
            }
            (Some(name), _) => Some(name.clone()),
            (None, _) => default.map(|_| DEFAULT_USER.to_owned()),
        };
        Ok(Self {
            user: chosen_user.unwrap_or(UserId(0)),
            group: chosen_group.unwrap_or(GroupId(0)),
            user_name: name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_and_group_of_the_package_or_root() {
        let ids = |uname: Option<&str>, gname: Option<&str>| {
            let config = Config {
                uname: uname.map(str::to_owned),
                gname: gname.map(str::to_owned),
                ..Config::default()
            };
            Identity::of(&config).map(|identity| (identity.user.0, identity.group.0))
        };
        let package = find_user("sanlock").unwrap().zip(find_group("sanlock").unwrap());
        let default = package.map_or((0, 0), |(user, group)| (user.0, group.0));
        assert_eq!(ids(None, None).unwrap(), default);
        assert_eq!(ids(Some("root"), Some("root")).unwrap(), (0, 0));
        assert_eq!(ids(Some("4711"), Some("4712")).unwrap(), (4711, 4712));
        let named = |uname: &str| {
            let config = Config { uname: Some(uname.to_owned()), ..Config::default() };
            Identity::of(&config).unwrap().user_name.unwrap()
        };
        assert_eq!(named("0"), "root", "whose groups are those of its name");
        assert_eq!((named("root"), named("4711")), ("root".to_owned(), "4711".to_owned()));
        for (user, group) in [(Some("no-such-user"), None), (None, Some("no-such-group"))] {
            assert!(matches!(ids(user, group), Err(StartError::Unknown { .. })), "{user:?} {group:?}");
        }
    }
}
