//! Where the control socket lies, as the gateway and the commands that ask it both compute it.
//!
//! Looks at the environment, opens nothing. Invariant: one configuration names one path, whoever computes it as the same user
//! in the same environment.

use std::path::PathBuf;

use crate::config::ControlSocket;

/// The socket of a configuration whose first address has this port. `Ok(None)`: it has none.
///
/// # Errors
/// With the reason why `auto` finds no folder.
pub(crate) fn path(wanted: &ControlSocket, port: u16) -> Result<Option<PathBuf>, String> {
    let folder = match wanted {
        ControlSocket::Off => return Ok(None),
        ControlSocket::Path(path) => return Ok(Some(path.clone())),
        ControlSocket::Auto => folder(&|name| std::env::var(name).ok(), rustix::process::geteuid().is_root()),
    };
    match folder {
        Some(folder) => Ok(Some(folder.join(format!("zerohop-{port}.sock")))),
        None => Err(
            "there is no folder for it, since neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR is set: give its path by \
             server.control_socket"
                .into(),
        ),
    }
}

/// The folder of sockets: systemd's for the service, the user's own, or root's.
fn folder(env: &dyn Fn(&str) -> Option<String>, is_root: bool) -> Option<PathBuf> {
    // systemd separates several folders by colons.
    let first = |list: String| list.split(':').next().map(PathBuf::from);
    let absolute = |path: &PathBuf| path.is_absolute();
    let service = env("RUNTIME_DIRECTORY").and_then(first).filter(absolute);
    let own = || env("XDG_RUNTIME_DIR").map(PathBuf::from).filter(absolute);
    let root = || is_root.then(|| PathBuf::from("/run"));
    service.or_else(own).or_else(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_services_the_users_or_roots() {
        let table = [
            ("/run/zerohop:/run/other", "/run/user/7", false, Some("/run/zerohop")),
            ("", "/run/user/7", true, Some("/run/user/7")),
            ("relative", "also", true, Some("/run")),
            ("", "", true, Some("/run")),
            ("", "", false, None),
        ];
        for (service, own, is_root, wanted) in table {
            let env = |name: &str| {
                let value = if name == "RUNTIME_DIRECTORY" { service } else { own };
                (!value.is_empty()).then(|| value.to_owned())
            };
            assert_eq!(
                folder(&env, is_root).as_deref(),
                wanted.map(std::path::Path::new),
                "{service} {own}"
            );
        }
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        assert_eq!(path(&ControlSocket::Off, 1), Ok(None));
        assert_eq!(path(&ControlSocket::Path("a".into()), 1), Ok(Some("a".into())));
    }
}
