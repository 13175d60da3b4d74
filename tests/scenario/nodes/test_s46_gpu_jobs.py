"""Jobs that ask for GPUs: real nodes whose driver is a double. Which GPUs ranks find, by which names, what a job waits for,
and what it is told when no node has them."""
import json
import shutil
import time

import pytest

from fake_node import refused
from gpu_nodes import DOUBLES, GIB, Driver, all_linked, gpu_node, gpus, until_listed
from support import until

SHOW = ['sh', '-c', 'echo "$RANK $LOCAL_RANK ${CUDA_VISIBLE_DEVICES-unset} ${CUDA_DEVICE_ORDER-unset}"']
STAY = ['sh', '-c', f'{SHOW[2]}; exec sleep 600']


@pytest.fixture
def coordinator(cluster):
    c = cluster.start("--role", "coordinator", name="coordinator")
    c.listened = c.address  # also when it is started again
    return c


def spec(command=SHOW, devices=1, **resources):
    env = resources.pop("env", {})
    return json.dumps({"kind": "command", "command": command, "env": env, "trainer": {"devices": devices}, "resources": resources})


def said(coordinator, job):
    """Of each rank, by its number: what SHOW printed."""
    spec = json.loads(coordinator.job(job).spec_json)
    lines = [coordinator.output(job, rank=i, out_only=True).strip("\n").split(" ") for i in range(spec["trainer"]["devices"])]
    return {int(rank): rest for rank, *rest in lines}


def ran(coordinator, text):
    job = coordinator.submit(text)
    coordinator.finish(job)
    return said(coordinator, job)


def running(coordinator, text):
    job = coordinator.submit(text)
    coordinator.wait_state(job, "RUNNING")
    return job


def waits(coordinator, job, words, code="WAITING_FOR_DEVICES"):
    until(f"{job} waits: {coordinator.job(job).reason.text}",
          lambda: (lambda r: r.code == code and words in r.text)(coordinator.job(job).reason))


def one_node(cluster, coordinator, tmp_path, lines, *args, slots=8, **env):
    driver = Driver(tmp_path, "one")
    driver.says(*lines)
    node = gpu_node(cluster, coordinator, driver, "one", *args, slots=slots, **env)
    n = sum(line.startswith(("gpu", "mig")) for line in lines) - len({line.split()[1] for line in lines if line.startswith("mig ")})
    until_listed(coordinator, "one", lambda l: len(l.gpus) == n)
    return driver, node


def test_ranks_find_their_gpus_and_jobs_wait_for_them(cluster, coordinator, tmp_path):
    driver, _ = one_node(cluster, coordinator, tmp_path, gpus("a", 4) + all_linked("a", 4))
    two = Driver(tmp_path, "two")
    two.says(*gpus("b", 4, "NVIDIA_A40", 0x40))
    gpu_node(cluster, coordinator, two, "two", slots=8)
    until_listed(coordinator, "two", lambda l: len(l.gpus) == 4)
    all_of = lambda p: ",".join(f"GPU-{p}{i}" for i in range(4))
    found = ran(coordinator, spec(devices=4, gpus_per_rank=1, gpu={"model": "*h100*", "memory": "40GiB"}))
    assert found == {i: [str(i), all_of("a"), "unset"] for i in range(4)}
    assert ran(coordinator, spec(devices="auto", gpus_per_rank=2, gpu={"model": "*A40"}, isolate_gpus=True)) == \
        {0: ["0", "GPU-b0,GPU-b1", "unset"], 1: ["1", "GPU-b2,GPU-b3", "unset"]}
    refused("FAILED_PRECONDITION", lambda: coordinator.submit(spec(devices=5, gpus_per_rank=1)), "UNSATISFIABLE",
            "no known node has 5 GPUs")
    said_no = coordinator.ctl("submit", "-", "--dry-run", stdin=spec(gpus_per_rank=1, gpu={"model": "*B200*"}), check=1).stderr
    assert "no known node has 1 GPU like *B200* for a job; node" in said_no and "4 NVIDIA" in said_no, said_no
    # one holds three, another all of the other node, a third waits for those
    first = running(coordinator, spec(STAY, devices=3, gpus_per_rank=1, gpu={"model": "*H100*"}))
    second = running(coordinator, spec(STAY, devices=4, gpus_per_rank=1))
    third = coordinator.submit(spec(devices=2, gpus_per_rank=1, gpu={"model": "*H100*"}))
    waits(coordinator, third, f"needs 2 GPUs like *H100*, 1 free on node one (4 GPUs); job {first} ")
    assert list(coordinator.job(second).devices) == [f"GPU-b{i}" for i in range(4)]
    table = coordinator.ctl("node", "list", check=0).stdout
    assert "4 NVIDIA H100 80GB HBM3 (3 in use)" in table and "4 NVIDIA A40 (4 in use)" in table, table
    assert f"gpu 0 job          {first}" in coordinator.ctl("node", "show", "one", check=0).stdout.splitlines()
    coordinator.ctl("cancel", first, check=0)
    coordinator.finish(third)
    assert said(coordinator, third)[1] == ["1", "GPU-a0,GPU-a1", "unset"]
    coordinator.ctl("cancel", second, check=0)


def test_job_that_asks_for_none_finds_none(cluster, coordinator, tmp_path):
    one_node(cluster, coordinator, tmp_path, gpus("a", 2), CUDA_VISIBLE_DEVICES="GPU-a1,GPU-a0")
    assert ran(coordinator, spec()) == {0: ["0", "", "unset"]}
    assert ran(coordinator, spec(unmanaged_gpus=True)) == {0: ["0", "GPU-a1,GPU-a0", "unset"]}
    env = {"CUDA_VISIBLE_DEVICES": "1"}
    assert ran(coordinator, spec(unmanaged_gpus=True, env=env)) == {0: ["0", "1", "unset"]}
    for more, words in [({"env": env}, "with resources.unmanaged_gpus: true it is left alone"),
                        ({"unmanaged_gpus": True, "gpus_per_rank": 1}, "set one of the two"),
                        ({"gpu": {"model": "x"}}, "a rank gets none; ask for some"),
                        ({"isolate_gpus": True}, "a rank gets no GPU"),
                        ({"gpu_names": "index"}, "a rank gets no GPU"),
                        ({"gpus_per_rank": 65}, "an integer from 0 to 64"),
                        ({"gpus": 1}, "did you mean gpus_per_rank?"),
                        ({"gpus_per_rank": 1, "gpu": {"model": "x", "size": 1}}, "size"),
                        ({"gpus_per_rank": 1, "gpu": {"memory": "much"}}, "4GiB"),
                        ({"gpus_per_rank": 1, "gpu": "H100"}, "a map of keys"),
                        ({"gpus_per_rank": 1, "gpu_names": "index", "env": {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}}, "PCI")]:
        refused("INVALID_ARGUMENT", lambda: coordinator.submit(spec(**more)), "SPEC_INVALID", words)
    refused("INVALID_ARGUMENT", lambda: coordinator.submit(spec(devices=33, gpus_per_rank=2)), "SPEC_INVALID",
            "33 ranks of 2 GPUs each are more than the 64")


def test_gpus_have_the_names_that_the_program_reads(cluster, coordinator, tmp_path):
    # The bus decides an index, not the order in which the driver lists them.
    one_node(cluster, coordinator, tmp_path, gpus("b", 1, first_bus=0x80) + gpus("a", 3))
    hold = running(coordinator, spec(STAY, gpus_per_rank=1))
    assert list(coordinator.job(hold).devices) == ["GPU-a0"]
    found = ran(coordinator, spec(devices=3, gpus_per_rank=1, gpu_names="index"))
    assert found == {i: [str(i), "1,2,3", "PCI_BUS_ID"] for i in range(3)}
    alone = ran(coordinator, spec(devices=3, gpus_per_rank=1, gpu_names="index", isolate_gpus=True))
    assert alone == {i: [str(i), str(i + 1), "PCI_BUS_ID"] for i in range(3)}
    coordinator.ctl("cancel", hold, check=0)


# Torch counts by NVML what the variable names; the double is its driver, too.
def test_torch_counts_the_gpus_of_its_job(cluster, coordinator, tmp_path, torch_python):
    driver, _ = one_node(cluster, coordinator, tmp_path, gpus("a", 4))
    (tmp_path / "lib").mkdir()
    shutil.copy(DOUBLES / "nvml.so", tmp_path / "lib/libnvidia-ml.so.1")
    count = [torch_python, "-c", "import torch; print(torch.cuda.device_count())"]
    env = {"LD_LIBRARY_PATH": str(tmp_path / "lib"), "NVML_DOUBLE": str(driver.script)}
    expected = {coordinator.submit(spec(count, env=env, **resources)): n for n, resources in [
        (2, {"gpus_per_rank": 2}), (1, {"gpus_per_rank": 1, "gpu_names": "index"}), (0, {}), (4, {"unmanaged_gpus": True})]}
    for job, n in expected.items():
        coordinator.finish(job, deadline_s=120)
        assert coordinator.output(job, out_only=True) == f"{n}\n"


def test_rank_has_one_instance_of_mig_alone(cluster, coordinator, tmp_path):
    mig = [f"mig GPU-a0 MIG-{i} NVIDIA_H100_MIG_1g.10gb {10 * GIB}" for i in range(3)]
    one_node(cluster, coordinator, tmp_path, gpus("a", 1) + mig)
    assert ran(coordinator, spec(devices=3, gpus_per_rank=1)) == {i: [str(i), f"MIG-{i}", "unset"] for i in range(3)}
    refused("FAILED_PRECONDITION", lambda: coordinator.submit(spec(gpus_per_rank=2)), "UNSATISFIABLE", "3 NVIDIA H100 MIG")


def test_process_that_is_no_job_s_holds_its_gpu(cluster, coordinator, tmp_path):
    driver, node = one_node(cluster, coordinator, tmp_path, gpus("a", 2))
    job = running(coordinator, spec(STAY, devices=2, gpus_per_rank=1))
    driver.adds(f"process GPU-a1 4242 {GIB}")  # of this job, or of a stranger: it has it now
    coordinator.ctl("cancel", job, check=0)
    coordinator.wait_state(job, "CANCELLED")
    began = time.monotonic()
    until_listed(coordinator, "one", lambda l: l.gpus[1].processes)
    assert time.monotonic() - began < 9, "the driver is asked when an attempt has ended, not after an interval"
    waiting = coordinator.submit(spec(devices=2, gpus_per_rank=1))
    waits(coordinator, waiting, "needs 2 GPUs, 1 free on node one (2 GPUs); GPU-a1: held by pid 4242")
    assert ran(coordinator, spec()) == {0: ["0", "", "unset"]}, "others pass it"
    driver.says(*gpus("a", 2))
    coordinator.finish(waiting)
    assert said(coordinator, waiting)[0] == ["0", "GPU-a0,GPU-a1", "unset"]


def test_node_may_give_gpus_that_others_use(cluster, coordinator, tmp_path):
    one_node(cluster, coordinator, tmp_path, gpus("a", 1) + [f"process GPU-a0 4242 {GIB}"], "--busy-devices", "use")
    until_listed(coordinator, "one", lambda l: l.gpus[0].processes)
    assert ran(coordinator, spec(gpus_per_rank=1)) == {0: ["0", "GPU-a0", "unset"]}
    other = cluster.make("--busy-devices", "share", name="x")
    other.start(wait=False)
    assert other.process.wait(30) != 0 and "is wait or use, not 'share'" in other.tail()


def test_job_waits_while_its_node_lists_its_gpus(cluster, coordinator, tmp_path):
    driver = Driver(tmp_path, "one")
    driver.says(*gpus("a", 2), "hang nvmlInit 60")
    gpu_node(cluster, coordinator, driver, "one", "--gpu-timeout-ms", 700, slots=4)
    until("the node is ready", lambda: coordinator.nodes("READY"))
    job = coordinator.submit(spec(devices=2, gpus_per_rank=1))
    waits(coordinator, job, "needs 2 GPUs; node one has not said yet which GPUs it has")
    refused("FAILED_PRECONDITION", lambda: coordinator.submit(spec(devices="auto", gpus_per_rank=1)), "", "give a number")
    waits(coordinator, job, "which GPUs it has: the NVIDIA driver does not answer")
    driver.says(*gpus("a", 2))
    coordinator.finish(job)
    assert said(coordinator, job)[1] == ["1", "GPU-a0,GPU-a1", "unset"]


def test_job_keeps_its_gpus_when_daemons_are_started_again(cluster, coordinator, tmp_path):
    driver, node = one_node(cluster, coordinator, tmp_path, gpus("a", 2))
    job = running(coordinator, spec(STAY, gpus_per_rank=1))
    coordinator.restart()
    node.restart()
    until_listed(coordinator, "one", lambda l: [g.job for g in l.gpus] == [job, ""])
    assert ran(coordinator, spec(gpus_per_rank=1)) == {0: ["0", "GPU-a1", "unset"]}
    assert coordinator.state(job) == "RUNNING"
    coordinator.ctl("cancel", job, check=0)
