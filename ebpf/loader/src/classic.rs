//! The second step of the ladder: a classic program, which needs no capability, and can choose by CPU only.
//!
//! Invariant: the index that it answers is that of the CPU's worker, where sockets were bound in the order of workers.

/// A statement: code, jumps if true and if false, operand.
pub(crate) type Statement = (u16, u8, u8, u32);

const LOAD_ABSOLUTE: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const MODULO: u16 = 0x94;
const RETURN: u16 = 0x06;
const RETURN_A: u16 = 0x16;
/// `SKF_AD_OFF + SKF_AD_CPU`: not a byte of the packet, but the CPU.
const CPU: u32 = (-0x1000_i32 + 36) as u32;

/// The program for workers on these cores, in this order. A CPU without a worker counts round.
pub(crate) fn program(cores: &[usize]) -> Vec<Statement> {
    let mut program = vec![(LOAD_ABSOLUTE, 0, 0, CPU)];
    for (worker, core) in cores.iter().enumerate() {
        program.push((JUMP_IF_EQUAL, 0, 1, *core as u32));
        program.push((RETURN, 0, 0, worker as u32));
    }
    program.push((MODULO, 0, 0, cores.len().max(1) as u32));
    program.push((RETURN_A, 0, 0, 0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program answers on this CPU.
    fn run(program: &[Statement], cpu: u32) -> u32 {
        let (mut at, mut a) = (0, 0);
        loop {
            let (code, jt, jf, k) = program[at];
            at += 1;
            match code {
                LOAD_ABSOLUTE => a = cpu,
                JUMP_IF_EQUAL => at += usize::from(if a == k { jt } else { jf }),
                MODULO => a %= k,
                RETURN => return k,
                _ => return a,
            }
        }
    }

    #[test]
    fn each_core_has_its_worker() {
        for (cores, expected) in [
            (&[0, 1][..], &[0, 1, 0, 1, 0][..]),
            (&[2, 0], &[1, 1, 0, 1, 0]),
            (&[3], &[0, 0, 0, 0, 0]),
            (&[1, 2, 4], &[0, 0, 1, 0, 2]),
        ] {
            let program = program(cores);
            let found: Vec<u32> = (0..5).map(|cpu| run(&program, cpu)).collect();
            assert_eq!(found, expected, "{cores:?}");
        }
    }
}
