package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Host is a network namespace whose only device, besides loopback, is attached
// to a switch, and a host name.
type Host struct {
	Name string
	Addr netip.Addr // IPv4, in a network of 24 bits

	network, uts *os.File // namespaces
}

// NewHost makes a host and attaches it to a switch. It needs the rights of
// CAP_NET_ADMIN and CAP_SYS_ADMIN.
func NewHost(s *Switch, name string, addr netip.Addr) (*Host, error) {
	h := &Host{Name: name, Addr: addr}
	var tap *os.File
	var mac MAC
	err := onOwnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWUTS); err != nil {
			return fmt.Errorf("a network namespace cannot be made (are you root?): %w", err)
		}
		if err := unix.Sethostname([]byte(name)); err != nil {
			return err
		}
		if h.network, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		if h.uts, err = os.Open("/proc/thread-self/ns/uts"); err != nil {
			return err
		}
		tap, mac, err = openTAP("net0", addr)
		return err
	})
	if err == nil {
		err = s.Attach(name, mac, tap)
	}
	if err != nil {
		if tap != nil {
			tap.Close()
		}
		h.Close()
		return nil, fmt.Errorf("fabric: host %s: %w", name, err)
	}
	return h, nil
}

// Do calls f on a thread in the host's namespace: sockets that f makes and
// processes that it starts are the host's.
func (h *Host) Do(f func() error) error {
	return onOwnThread(func() error {
		err := errors.Join(unix.Setns(int(h.network.Fd()), unix.CLONE_NEWNET), unix.Setns(int(h.uts.Fd()), unix.CLONE_NEWUTS))
		if err != nil {
			return fmt.Errorf("fabric: entering host %s: %w", h.Name, err)
		}
		return f()
	})
}

// Close lets go of the namespaces. They are gone when their processes are, too.
func (h *Host) Close() error {
	var errs []error
	for _, f := range []*os.File{h.network, h.uts} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// onOwnThread calls f on a thread that ends afterwards.
func onOwnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread's namespace is changed
		done <- f()
	}()
	return <-done
}

// openTAP makes a device in the thread's namespace, and brings it and loopback up.
func openTAP(name string, addr netip.Addr) (tap *os.File, mac MAC, err error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, mac, fmt.Errorf("/dev/net/tun: %w", err)
	}
	if err := setUp(fd, name, addr); err != nil {
		unix.Close(fd)
		return nil, mac, fmt.Errorf("setting up a TAP device: %w", err)
	}
	tap = os.NewFile(uintptr(fd), "tap "+name)
	device, err := net.InterfaceByName(name)
	if err != nil || len(device.HardwareAddr) != len(mac) {
		tap.Close()
		return nil, mac, fmt.Errorf("the address of a TAP device: %w", err)
	}
	return tap, MAC(device.HardwareAddr), nil
}

func setUp(fd int, name string, addr netip.Addr) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"address", "add", netip.PrefixFrom(addr, 24).String(), "dev", name},
		{"link", "set", name, "up"},
		{"link", "set", "lo", "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil { // it is in the thread's namespace, too
			return fmt.Errorf("ip %v: %w\n%s", args, err, out)
		}
	}
	return nil
}
