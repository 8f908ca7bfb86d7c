#!/usr/bin/env python3
"""swimlane-info runs anywhere, tells what a made-up machine has, and where each value comes from."""
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest

TOOL = sys.argv.pop(1)
HIDE_RDMA = os.environ.get("HIDE_RDMA")
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("SWIMLANE_", "NCCL_"))}


def run(*words, **variables):
    return subprocess.run([TOOL, *words], env={**CLEAN, **variables}, capture_output=True,
                          text=True, timeout=60)


def info(*words, **variables):
    return json.loads(run("--json", *words, **variables).stdout)


def write(root, path, text):
    os.makedirs(os.path.dirname(root + path), exist_ok=True)
    with open(root + path, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def make_machine(root, nnics, name="mlx5_%d"):
    def write(path, text):
        globals()["write"](root, path, text)

    def pci(place):
        write(f"/sys/devices/{place}/numa_node", "0")
        os.makedirs(root + "/sys/bus/pci/devices", exist_ok=True)
        os.symlink(f"../../../devices/{place}",
                   root + "/sys/bus/pci/devices/" + place.rsplit("/", 1)[1])

    pci("pci0000:16/0000:16:01.0/0000:1a:00.0")
    for i in range(nnics):
        bridge = "pci0000:16/0000:16:01.0" if i == 1 else "pci0000:46/0000:46:01.0"
        place = f"{bridge}/0000:{i:02x}:00.1"
        pci(place)
        nic = "/sys/class/infiniband/" + name % i
        write(nic + "/ports/1/state", "4: ACTIVE")
        write(nic + "/ports/1/rate", "400 Gb/sec (4X NDR)")
        write(nic + "/ports/1/link_layer", "Ethernet")
        write(nic + "/ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000")
        write(nic + "/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:c0a8:0102")
        write(nic + "/ports/1/gid_attrs/types/3", "RoCE v2")
        write(nic + "/ports/2/state", "1: DOWN")
        os.symlink(f"../../../devices/{place}", root + nic + "/device")
        write(f"/sys/devices/{place}/net/eth{i}/type", "1")
        write(f"/sys/class/net/eth{i}/mtu", "9000")
        write(f"/sys/class/infiniband_verbs/uverbs{i}/ibdev", name % i)
        write(f"/dev/infiniband/uverbs{i}", "")
    write("/sys/module/nvidia_peermem/refcnt", "0")
    write("/proc/driver/nvidia/version", "NVRM version: made up 580.1")


class Info(unittest.TestCase):
    def test_D_C4_shows_no_secret(self):
        for words in ((), ("--json",)):
            got = run(*words, SWIMLANE_JOB_SECRET="open sesame")
            self.assertNotIn("sesame", got.stdout + got.stderr)
            self.assertIn("not shown", got.stdout)

    def test_runs_here_and_is_quiet_on_stderr(self):
        got = run()
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        for words in ("host:", "transports:", "variables:", "choice:"):
            self.assertIn("\n" + words, got.stdout)

    def test_json_has_the_same_sections(self):
        got = info()
        for key in ("host", "gpus", "nics", "transports", "choice", "variables"):
            self.assertIn(key, got)

    def test_json_is_what_programs_may_rely_on(self):
        got = info("--nodes", "2", "--ranks-per-node", "2")
        host = {"kernel": str, "rdma_core": str, "modules": dict}
        for key, kind in host.items():
            self.assertIsInstance(got["host"][key], kind, key)
        for value in got["host"]["modules"].values():
            self.assertIsInstance(value, bool)
        self.assertIsInstance(got["gpus"], list)
        self.assertIsInstance(got["nics"], list)
        self.assertEqual(got["nics_found"] >= len(got["nics"]), True)
        self.assertEqual(set(got["transports"]), {"peer", "mlx5", "verbs", "soft", "tcp"})
        for name, t in got["transports"].items():
            self.assertIsInstance(t["allowed"], bool, name)
            self.assertIsInstance(t.get("works_here", True), bool, name)
            self.assertIsInstance(t["needs"], str, name)
        self.assertEqual(set(got["choice"]["peers_of_rank_0"]), {"rank_1", "rank_2", "rank_3"})
        for name, v in got["variables"].items():
            self.assertRegex(name, "^(SWIMLANE|NCCL|SIMT|CUDA)_|^NVCC")
            self.assertIn("source", v, name)
            self.assertIn("value", v, name)

    @unittest.skipUnless(HIDE_RDMA, "nothing that hides rdma-core is preloaded under a sanitizer")
    def test_machine_without_rdma_core(self):
        got = run(LD_PRELOAD=HIDE_RDMA)
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        for words in ("libibverbs.so.1", "libibverbs1", "variables:"):
            self.assertIn(words, got.stdout)
        got = info("--nodes", "2", LD_PRELOAD=HIDE_RDMA)
        for name in ("mlx5", "verbs"):
            self.assertFalse(got["transports"][name]["works_here"], name)
        self.assertIn("libibverbs.so.1", got["transports"]["verbs"]["why_not"])
        self.assertTrue(got["transports"]["tcp"]["works_here"])
        self.assertIn("libibverbs.so.1", got["host"]["rdma_core"])

    def test_every_transport_works_or_says_why_not(self):
        for name, t in info()["transports"].items():
            self.assertTrue(t["needs"], name)
            if name != "peer":
                self.assertTrue(t["works_here"] or t["why_not"].startswith(name + ": "), name)

    def test_made_up_machine(self):
        with tempfile.TemporaryDirectory() as root:
            make_machine(root, 3)
            got = info("--root", root, "--gpu", "0000:1a:00.0")
        self.assertTrue(got["host"]["modules"]["nvidia_peermem"])
        self.assertFalse(got["host"]["modules"]["mlx5_core"])
        self.assertIn("580.1", got["host"]["nvidia_driver"])
        self.assertEqual([n["nic"] for n in got["nics"]], ["mlx5_0", "mlx5_1", "mlx5_2"])
        near = [n["from_gpus"]["0000:1a:00.0"] for n in got["nics"]]
        self.assertEqual(near[0], "one NUMA node")
        self.assertTrue(near[1].startswith("one PCIe switch"), near[1])
        port = got["nics"][0]["ports"][0]
        self.assertEqual((port["state"], port["rate"]), ("4: ACTIVE", "400 Gb/sec (4X NDR)"))
        self.assertEqual(port["gids"], ["3: 0000:0000:0000:0000:0000:ffff:c0a8:0102, RoCE v2"])
        self.assertEqual(got["nics"][0]["ports"][1]["rate"], "unknown")
        self.assertEqual(got["nics"][0]["interfaces"], ["eth0, MTU 9000"])

    def test_iwarp_device_is_refused_and_the_next_taken(self):
        with tempfile.TemporaryDirectory() as root:
            make_machine(root, 2)
            write(root, "/sys/class/infiniband/mlx5_1/node_type", "4: RNIC")
            got = info("--root", root, "--gpu", "0000:1a:00.0")
        self.assertEqual([n["usable"] for n in got["nics"]], [True, False])
        self.assertIn("iWARP", got["nics"][1]["why_not"])
        self.assertTrue(got["nics_of_gpus"]["0000:1a:00.0"][0].startswith("mlx5_0 "))

    def test_f48_hosts_with_many_nics(self):
        for n in (1, 8, 32, 33, 64, 65):
            with tempfile.TemporaryDirectory() as root:
                make_machine(root, n, "x" * 61 + "%02d")  # 63 characters
                got = info("--root", root)
            self.assertEqual(got["nics_found"], n)
            self.assertEqual(len(got["nics"]), min(n, 64))
            self.assertEqual("nics_cut" in got, n > 64)
            self.assertEqual(len(got["nics"][-1]["nic"]), 63)

    def test_values_and_their_sources(self):
        got = info(SWIMLANE_IB_SL="3", NCCL_IB_HCA="mlx5_7", SWIMLANE_IB_TC="999",
                   NCCL_EP_TIMEOUT_MS="")["variables"]
        self.assertEqual((got["SWIMLANE_IB_SL"]["value"], got["SWIMLANE_IB_SL"]["source"]),
                         ("3", "SWIMLANE_IB_SL"))
        self.assertEqual((got["SWIMLANE_IB_HCA"]["value"], got["SWIMLANE_IB_HCA"]["source"]),
                         ("mlx5_7", "NCCL_IB_HCA"))
        self.assertEqual(got["SWIMLANE_IB_TC"]["source"], "built-in")
        self.assertEqual(got["SWIMLANE_IB_TC"]["malformed"], "SWIMLANE_IB_TC 999")
        self.assertEqual(got["NCCL_EP_TIMEOUT_MS"]["source"], "built-in")

    def test_own_variable_wins_over_nccls(self):
        got = info(SWIMLANE_IB_HCA="mlx5_1", NCCL_IB_HCA="mlx5_7")["variables"]
        self.assertEqual(got["SWIMLANE_IB_HCA"]["source"], "SWIMLANE_IB_HCA")

    def test_malformed_value_is_named_once(self):
        got = run(SWIMLANE_TRANSPORT="peer,pigeon")
        self.assertEqual(got.returncode, 0)
        self.assertEqual(got.stderr.count("pigeon"), 1)

    def test_json_survives_bytes_that_are_no_text(self):
        got = info(SWIMLANE_IB_HCA=os.fsdecode(b"mlx5_\xff\"\x01"))["variables"]
        self.assertEqual(got["SWIMLANE_IB_HCA"]["value"], "mlx5_\ufffd\"\x01")

    def test_choice_follows_layout_and_list(self):
        layout = ("--nodes", "2", "--ranks-per-node", "2")
        for words, peers in ((None, ["peer", "soft", "soft"]), ("soft", ["soft"] * 3),
                             ("PEER", ["peer", "none", "none"]),
                             ("tcp,soft", ["soft"] * 3)):
            variables = {"SWIMLANE_TRANSPORT": words} if words else {}
            got = info(*layout, **variables)
            if got["host"]["ranks"] != "emulated" and words is None:
                continue  # as the machine is
            got = list(got["choice"]["peers_of_rank_0"].values())
            self.assertEqual([p.split(":")[0] for p in got], peers, words)

    def test_f90_limit_of_locked_memory_is_judged(self):
        def child(limit):
            def prepare():
                ctypes.CDLL(None).prctl(24, 14, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_IPC_LOCK
                resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, hard))
            return prepare

        hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        for limit, words in ((65536, "too small"), (8 << 20, "too small"),
                             (256 << 20, "perhaps too small")):
            if hard != resource.RLIM_INFINITY and limit > hard:
                continue
            got = subprocess.run([TOOL, "--json"], env=CLEAN, capture_output=True, text=True,
                                 timeout=60, preexec_fn=child(limit))
            host = json.loads(got.stdout)["host"]
            self.assertEqual(host["locked_memory_kib"], str(limit >> 10))
            self.assertTrue(host["locked_memory_verdict"].startswith(words), host)
            self.assertIn("ulimit -l", host["locked_memory_verdict"])

    def test_f96_nics_without_device_nodes_are_marked(self):
        with tempfile.TemporaryDirectory() as root:
            make_machine(root, 4)
            for i in (0, 2):
                os.unlink(root + f"/dev/infiniband/uverbs{i}")
            got = info("--root", root, "--gpu", "0000:1a:00.0")
            self.assertEqual([n["usable"] for n in got["nics"]], [False, True, False, True])
            self.assertIn("/dev/infiniband/uverbs2 is missing", got["nics"][2]["why_not"])
            self.assertEqual(got["nics"][3]["device"], "/dev/infiniband/uverbs3")
            os.unlink(root + "/sys/class/infiniband_verbs/uverbs3/ibdev")
            got = info("--root", root)["nics"][3]
            self.assertIn("no uverbs device", got["why_not"])

    def test_d_c8_folder_without_a_device(self):
        with tempfile.TemporaryDirectory() as root:
            make_machine(root, 1)
            self.assertIn("has devices", info("--root", root)["host"]["dev_infiniband_verdict"])
            os.rename(root + "/dev/infiniband/uverbs0", root + "/dev/infiniband/rdma_cm")
            host = info("--root", root)["host"]
            self.assertTrue(host["dev_infiniband"])
            self.assertIn("a folder without a device, although", host["dev_infiniband_verdict"])
            os.unlink(root + "/dev/infiniband/rdma_cm")
            os.rmdir(root + "/dev/infiniband")
            self.assertIn("missing, although", info("--root", root)["host"]["dev_infiniband_verdict"])
        with tempfile.TemporaryDirectory() as root:
            self.assertIn("no RDMA device", info("--root", root)["host"]["dev_infiniband_verdict"])

    def test_d_c8_ports_that_serve_nothing(self):
        with tempfile.TemporaryDirectory() as root:
            make_machine(root, 3)
            write(root, "/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN")
            write(root, "/sys/class/infiniband/mlx5_1/ports/1/gids/3",
                  "fe80:0000:0000:0000:0000:0000:0000:0001")
            got = info("--root", root)["nics"]
            self.assertIn("is not active", got[0]["why_not"])
            self.assertIn("no routable RoCE v2 address", got[1]["why_not"])
            self.assertEqual(got[2]["path"]["gid_index"], 3)
            got = info("--root", root, SWIMLANE_IB_GID_INDEX="7")["nics"]
            self.assertIn("no address at index 7", got[2]["why_not"])

    def test_f113_nic_of_each_gpu(self):
        gpu = "0000:1a:00.0"
        with tempfile.TemporaryDirectory() as root:
            make_machine(root, 4)
            words = ("--root", root, "--gpu", gpu)
            self.assertEqual(info(*words)["nics_of_gpus"],
                             {gpu: ["mlx5_1 port 1, one PCIe switch or port"]})
            got = info(*words, SWIMLANE_NICS="3")["nics_of_gpus"][gpu]
            self.assertEqual([n.split()[0] for n in got], ["mlx5_1", "mlx5_0", "mlx5_2"])
            got = info(*words, NCCL_IB_HCA="^mlx5_1")
            self.assertEqual(got["nics_of_gpus"][gpu][0].split()[0], "mlx5_0")
            self.assertEqual(got["nics"][1]["why_not"], "NCCL_IB_HCA leaves it out")
            os.unlink(root + "/dev/infiniband/uverbs1")
            os.unlink(root + "/dev/infiniband/uverbs0")
            self.assertEqual(info(*words)["nics_of_gpus"][gpu][0].split()[0], "mlx5_2")

    def test_f114_path_attributes_and_bonds(self):
        with tempfile.TemporaryDirectory() as root:
            make_machine(root, 1)
            write(root, "/sys/class/net/eth0/bonding/slaves", "eth7 eth8")
            nic = info("--root", root)["nics"][0]
            self.assertEqual(nic["interfaces"], ["eth0, MTU 9000, bond of eth7 eth8"])
            self.assertEqual(nic["path"], {"port": 1, "gid_index": 3, "service_level": 0,
                                           "traffic_class": 0, "ack_timeout": "20 (4295.0 ms)",
                                           "retries": 7})
            nic = info("--root", root, SWIMLANE_IB_SL="3", NCCL_IB_TC="106", NCCL_IB_TIMEOUT="14",
                       SWIMLANE_IB_RETRY_CNT="2")["nics"][0]
            self.assertEqual(list(nic["path"].values())[2:], [3, 106, "14 (67.1 ms)", 2])
            nic = info("--root", root, SWIMLANE_IB_SL="9")["nics"][0]
            self.assertIn("SWIMLANE_IB_SL is above 7", nic["path"]["refused"])

    def test_path_names_the_partition_key(self):
        with tempfile.TemporaryDirectory() as root:
            make_machine(root, 1)
            keys = "/sys/class/infiniband/mlx5_0/ports/1/pkeys/"
            for place, key in enumerate(("0x7fff", "0x0000", "0xffff")):
                write(root, keys + str(place), key)
            words = ("--root", root)
            self.assertEqual(info(*words)["nics"][0]["path"]["partition_key"], "0xffff (place 2)")
            nic = info(*words, NCCL_IB_PKEY="0")["nics"][0]
            self.assertEqual(nic["path"]["partition_key"], "0x7fff (place 0), a limited member")
            nic = info(*words, SWIMLANE_IB_PKEY="1")["nics"][0]
            self.assertFalse(nic["usable"])
            self.assertIn("no valid partition key at SWIMLANE_IB_PKEY", nic["why_not"])
            self.assertIn("are valid: 0 (0x7fff), 2 (0xffff)", nic["why_not"])
            for place in range(3):
                write(root, keys + str(place), "0x0000")
            self.assertIn("no valid partition key", info(*words)["nics"][0]["why_not"])

    def test_f102_abilities_of_the_build(self):
        got = info()
        build = got["build"]
        self.assertRegex(build["library"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(build["ranks"], got["host"]["ranks"])
        self.assertEqual(build["transports"].split(","), list(got["transports"]))
        self.assertIn("at run time", build["rdma_core"])
        for key in ("cuda_toolkit", "gpu_targets"):
            self.assertEqual(build[key] == "none", build["ranks"] == "emulated", key)
        if HIDE_RDMA:  # the build has them, whatever this machine has
            self.assertEqual(info(LD_PRELOAD=HIDE_RDMA)["build"], build)

    def test_f102_the_build_asks_this_machine_for_no_network(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        names = [os.path.join(root, "CMakeLists.txt")]
        for folder in ("cmake", "src", "transport", "kernels", "tools", "sim"):
            for path, _, files in os.walk(os.path.join(root, folder)):
                names += [os.path.join(path, f) for f in files]
        self.assertGreater(len(names), 100)
        for name in names:
            with open(name, encoding="utf-8", errors="replace") as file:
                for line in file:
                    self.assertNotRegex(line, r'# *include *[<"](infiniband|rdma)/', name)
                    self.assertNotRegex(line, r"find_(path|file|library|package)\(.*(ibverbs|mlx5|rdmacm)", name)

    def test_f110_presets_of_nccl_and_their_origin(self):
        with tempfile.TemporaryDirectory() as root:
            write(root, "/etc/nccl.conf", "# image\nNCCL_IB_SL=5\nNCCL_IB_DISABLE=0\nother=1")
            write(root, "/home.conf", "NCCL_IB_HCA=mlx5_9 # mine\nNCCL_NET=Socket")
            got = info("--root", root, NCCL_IB_DISABLE="1", NCCL_IB_TC="106", NCCL_IB_HCA="mlx5_0",
                       SWIMLANE_IB_HCA="mlx5_1", NCCL_IB_RETRY_CNT="99", NCCL_CROSS_NIC="",
                       NCCL_CONF_FILE=root + "/home.conf", SWIMLANE_IB_QPS="0")
            presets = got["nccl_presets"]
            self.assertEqual(presets["NCCL_IB_DISABLE"]["value"], "1")
            self.assertEqual(presets["NCCL_IB_DISABLE"]["origin"], "environment")
            self.assertIn("SWIMLANE_TRANSPORT", presets["NCCL_IB_DISABLE"]["followed"])
            self.assertEqual(presets["NCCL_IB_TC"]["followed"], "as SWIMLANE_IB_TC")
            self.assertEqual(presets["NCCL_IB_HCA"]["followed"], "no: SWIMLANE_IB_HCA is set")
            self.assertEqual(presets["NCCL_IB_RETRY_CNT"]["followed"],
                             "no: the value is out of range")
            self.assertEqual(presets["NCCL_IB_SL"]["origin"], root + "/etc/nccl.conf")
            self.assertIn("set SWIMLANE_IB_SL", presets["NCCL_IB_SL"]["followed"])
            self.assertEqual(presets["NCCL_NET"]["value"], "Socket")
            self.assertEqual(presets["NCCL_NET"]["origin"], root + "/home.conf")
            self.assertNotIn("NCCL_CROSS_NIC", presets)
            self.assertEqual(got["variables"]["SWIMLANE_IB_QPS"],
                             {"value": "not set (0)", "source": "built-in"})
            got = info(NCCL_IB_GID_INDEX="-1")["variables"]["SWIMLANE_IB_GID_INDEX"]
            self.assertEqual(got, {"value": "not set (-1)", "source": "built-in"})

    def test_f110_misspelt_variables_are_remarked(self):
        got = info(SWIMLANE_TRANSPORTS="soft", SWIMLAME_LOG="warn", NCCL_EP_TIMEOUT="5",
                   SWIMLANE_WHATEVER_ELSE="1", SWIMLANE_IB_SL="1", NCCL_EP_JIT_CACHE="/x",
                   UNRELATED="1")["unknown_variables"]
        self.assertEqual(set(got), {"SWIMLANE_TRANSPORTS", "SWIMLAME_LOG", "NCCL_EP_TIMEOUT",
                                    "SWIMLANE_WHATEVER_ELSE"})
        self.assertIn("perhaps SWIMLANE_TRANSPORT is", got["SWIMLANE_TRANSPORTS"])
        self.assertIn("perhaps SWIMLANE_LOG is", got["SWIMLAME_LOG"])
        self.assertIn("perhaps NCCL_EP_TIMEOUT_MS is", got["NCCL_EP_TIMEOUT"])
        self.assertNotIn("perhaps", got["SWIMLANE_WHATEVER_ELSE"])

    def test_d_c8_variables_that_are_not_set_take_one_line(self):
        lines = run(SWIMLANE_IB_SL="1").stdout.split("\nvariables:\n")[1].split("\n\n")[0]
        lines = lines.splitlines()
        self.assertEqual(lines[:3], ["  SWIMLANE_IB_SL:", "    value: 1",
                                     "    source: SWIMLANE_IB_SL"])
        self.assertEqual(len(lines), 4, lines)
        self.assertTrue(lines[3].startswith("  not set: NCCL_EP_DEBUG, SWIMLANE_LOG, "), lines[3])
        self.assertNotIn("SWIMLANE_IB_SL", lines[3])
        self.assertIn("SIMT_SHARED_KIB", lines[3])

    def test_wrong_options_are_refused(self):
        for words in (("--what",), ("--nodes",), ("--nodes", "0"), ("--nodes", "x"), ("--root",),
                      ("--root", "/nowhere"), ("--root", TOOL), ("--gpu",), ("--gpu", "0"),
                      ("--gpu", "0000:18:00"), ("--gpu", "0000:18:00.0/..")):
            got = run(*words)
            self.assertEqual((got.returncode, got.stdout), (2, ""), words)
            self.assertIn(words[0], got.stderr)
        self.assertEqual(run("--help").returncode, 0)
        for words, said in ((["--nodes", "0"], "--nodes needs a number of 1 to 4096, not '0'"),
                            (["--root", "/none"], "--root needs a folder that there is, not '/none'"),
                            (["--gpu"], "--gpu needs a PCI address like 0000:18:00.0"),
                            (["--node", "2"], "unknown option --node (--help lists the options)")):
            self.assertEqual(run(*words).stderr, f"swimlane-info: {said}\n")


if __name__ == "__main__":
    unittest.main()
