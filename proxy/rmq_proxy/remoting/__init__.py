"""The port for clients of the remoting protocol: Apache's remotingListenPort."""
