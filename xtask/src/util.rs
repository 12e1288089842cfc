//! What every command shares: the error type, the root, the shell, and waiting with a deadline.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use xshell::Shell;

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// The root of the workspace: the parent of this package's folder.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

/// A shell that stands in the root of the workspace.
pub(crate) fn shell() -> Result<Shell> {
    let sh = Shell::new()?;
    sh.change_dir(root());
    Ok(sh)
}

/// The cargo that runs this task.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Runs named steps, all of them, and fails with the names of those that failed.
pub(crate) fn run_all<'a>(steps: impl IntoIterator<Item = (&'a str, Result<()>)>) -> Result<()> {
    let mut failed = Vec::new();
    for (name, outcome) in steps {
        if let Err(error) = outcome {
            eprintln!("error: {name}: {error}");
            failed.push(name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
}

/// Asks again and again until the answer is `Ok`; after the deadline the last refusal is the error.
pub(crate) fn until<T>(limit: Duration, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if Instant::now() >= deadline => {
                return Err(format!("not after {limit:?}: {error}").into());
            }
            Err(_) => pause(),
        }
    }
}

/// What the command prints, which must be little. It is ended when it outlives the limit.
pub(crate) fn output_within(limit: Duration, command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.as_mut().map_err(|error| format!("{program}: {error}"))?;
    let status = status_within(limit, child)?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    if let (Some(stdout), Some(stderr)) = (child.stdout.as_mut(), child.stderr.as_mut()) {
        std::io::Read::read_to_end(stdout, &mut out)?;
        std::io::Read::read_to_end(stderr, &mut err)?;
    }
    if status.success() {
        return Ok(String::from_utf8_lossy(&out).into_owned());
    }
    out.append(&mut err);
    Err(format!("{program}: {status}: {}", String::from_utf8_lossy(&out).trim()).into())
}

/// How the child ended. It is ended when it outlives the limit.
pub(crate) fn status_within(limit: Duration, child: &mut std::process::Child) -> Result<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Err(format!("still running after {limit:?}").into());
        }
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "a task polls other processes, which send no event")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_keeps_the_last_refusal() {
        let mut asked = 0;
        let refused: Result<()> = until(Duration::from_millis(50), || {
            asked += 1;
            Err(format!("no {asked}").into())
        });
        assert_eq!(refused.unwrap_err().to_string(), format!("not after 50ms: no {asked}"));
        assert!(asked > 1);
    }

    #[test]
    fn a_program_that_hangs_is_ended_at_the_limit() {
        let started = Instant::now();
        let error = output_within(Duration::from_millis(100), Command::new("sleep").arg("60")).unwrap_err();
        assert_eq!(error.to_string(), "still running after 100ms");
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error =
            output_within(Duration::from_secs(10), Command::new("sh").args(["-c", "echo why; exit 3"]));
        assert_eq!(error.unwrap_err().to_string(), "sh: exit status: 3: why");
    }

    #[test]
    fn every_step_runs_and_the_failed_ones_are_named() {
        let steps = [("one", Err("a".into())), ("two", Ok(())), ("three", Err("b".into()))];
        assert_eq!(run_all(steps).unwrap_err().to_string(), "failed: one, three");
    }
}
