//! Tenure's own cost: an uncontended acquire and release where the store does no I/O.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use tenure::{Locks, Memory, Owner};
use tokio::runtime::Builder;

fn uncontended(criterion: &mut Criterion) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().expect("a runtime");
    let locks = Locks::new(Memory::new());
    let mut group = criterion.benchmark_group("memory");
    group.bench_function("acquire + release", |bench| {
        bench.to_async(&runtime).iter(|| async {
            let guard = locks.lock("a").acquire().await.expect("it is free");
            guard.release().await.expect("it was held");
        });
    });
    group.bench_function("read() + release", |bench| {
        bench.to_async(&runtime).iter(|| async {
            let guard = locks.rw("read").read().acquire().await.expect("nobody writes");
            guard.release().await.expect("it was held");
        });
    });
    group.bench_function("permit() + release", |bench| {
        bench.to_async(&runtime).iter(|| async {
            let guard = locks.semaphore("permits", 8).permit().acquire().await.expect("there are eight");
            guard.release().await.expect("it was held");
        });
    });
    group.bench_function("re-enter + leave", |bench| {
        let owner = Owner::new();
        let lock = locks.lock("b").owner(&owner);
        let _outer = runtime.block_on(lock.acquire()).expect("it is free");
        bench.to_async(&runtime).iter(|| async {
            let guard = lock.acquire().await.expect("the owner has it");
            guard.release().await.expect("it was held");
        });
    });
    group.bench_function("is_held", |bench| {
        let guard = runtime.block_on(locks.lock("c").acquire()).expect("it is free");
        bench.iter_batched(|| (), |()| guard.is_held(), BatchSize::SmallInput);
    });
    group.finish();
}

criterion_group!(benches, uncontended);
criterion_main!(benches);
