// sysfs_tree.h: a made-up /sys and /proc in a folder of its own, gone with the object.
#ifndef SWL_TESTS_UNIT_SITE_TREE_H
#define SWL_TESTS_UNIT_SITE_TREE_H

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

class SysfsTree
{
  public:
    SysfsTree()
    {
        char name[] = "/tmp/swimlane-sysfs-XXXXXX";

        root = mkdtemp(name);
    }
    ~SysfsTree()
    {
        std::filesystem::remove_all(root);
    }
    SysfsTree(const SysfsTree &) = delete;
    SysfsTree &operator=(const SysfsTree &) = delete;

    void file(const std::string &path, const std::string &text) const
    {
        std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
        std::ofstream(root + path) << text << "\n";
    }
    // As in /sys, links are relative: they stay inside the tree.
    void link(const std::string &path, const std::string &target) const
    {
        const std::filesystem::path from = root + path;

        std::filesystem::create_directories(from.parent_path());
        std::filesystem::create_directories(root + target);
        std::filesystem::create_directory_symlink(
            std::filesystem::relative(root + target, from.parent_path()), from);
    }
    // A PCI device below /sys/devices/<place>; its address is the last folder.
    void pci(const std::string &place, int numa) const
    {
        const std::string target = "/sys/devices/" + place;

        link("/sys/bus/pci/devices/" + place.substr(place.rfind('/') + 1), target);
        file(target + "/numa_node", std::to_string(numa));
    }
    // An RDMA device on the PCI device of that place, with active ports.
    void nic(const std::string &name, const std::string &place, int numa, int ports = 1) const
    {
        const std::string folder = "/sys/class/infiniband/" + name;

        pci(place, numa);
        link(folder + "/device", "/sys/devices/" + place);
        for (int p = 1; p <= ports; p++) {
            const std::string port = folder + "/ports/" + std::to_string(p);

            file(port + "/state", "4: ACTIVE");
            file(port + "/rate", "400 Gb/sec (4X NDR)");
            file(port + "/link_layer", "Ethernet");
            file(port + "/gids/0", "fe80:0000:0000:0000:5aa2:e1ff:fe11:0001");
            file(port + "/gids/3", "0000:0000:0000:0000:0000:ffff:c0a8:0102");
            file(port + "/gids/4", "0000:0000:0000:0000:0000:0000:0000:0000");
            file(port + "/gid_attrs/types/0", "IB/RoCE v1");
            file(port + "/gid_attrs/types/3", "RoCE v2");
        }
    }

    std::string root;
};

#endif
